"""What thoughts bring and cost: plain search, and RLP with thinkers that are good, useless or wrong.

    python -m benchmarks.rlp --seeds 10

Synthetic landscapes. Every run spends the same cells. The product's own parts run: sampler, learner, update,
weight; the model is simulated, with 10, 50 and 90 % quantiles of a normal forecast of candidate x, sd .1:

    mean   mu(x) + .05 N        good
           .5 + .14 N           useless
           1 - mu(x) + .05 N    wrong

It proposes settings as well, six before the first generation and five before each later one: near the
optimum (.15 of each range), anywhere, or near the worst point. *Trust* gives it all of the weight.
Regret: of each cell asked, summed over the run and divided by the cells (what the search cost), and
of the candidate handed over. Intervals: over seeds, Student's t, 95 %, paired with the plain run of
the same seed.
"""
