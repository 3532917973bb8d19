"""Gain and cost of thoughts: plain search, and RLP with good, useless or wrong thinkers.

    python -m benchmarks.rlp --seeds 10

On synthetic landscapes, every run spends the same cells. Sampler, learner, update and weight are the product's. The
model is simulated, with 10, 50 and 90 % quantiles of a normal forecast for candidate x, sd .1:

    mean   mu(x) + .05 N        good
           .5 + .14 N           useless
           1 - mu(x) + .05 N    wrong

It also proposes settings, six before the first generation and five before each later one: near the
optimum (.15 of each range), anywhere, or near the worst point. *Trust* gives it all of the weight.
The tables show the mean regret over evaluated cells (the search's cost) and the regret of the
recommended candidate. Intervals: over seeds, Student's t, 95 %, paired with the plain run of the
same seed.
"""
