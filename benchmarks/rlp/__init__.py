"""What thoughts bring and cost: plain search, always trusting them, and RLP.

    python -m benchmarks.rlp --seeds 50

Synthetic landscapes, each with thinkers that are good, useless or adversarial. Every run spends the
same cells. The product's own parts run: sampler, thinking, learner, lottery; the model is simulated:

    forecast of candidate x: normal, sd .1, mean   mu(x) + .05 N        good
                                                   .5 + .14 N           useless
                                                   1 - mu(x) + .05 N    adversarial
    without a thought: normal(.5, .3)

Each thought also proposes a region: around the optimum, anywhere, or around the worst point.
Regret: of each cell asked, summed over the run and divided by the cells (what the search cost), and
of the candidate handed over. Intervals: over seeds, Student's t, 95 %, paired with the plain run of
the same seed.
"""
