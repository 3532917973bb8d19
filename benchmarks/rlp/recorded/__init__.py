"""Gain from a large language model's hypotheses on real tasks, replayed from recorded replies.

    python -m benchmarks.rlp.recorded

Six tables of trained networks from the search benchmark, three seeds, and three generations of eight candidates with
eight test cases each (a case is one random training seed). The first generation includes the defaults. Three methods,
paired by seed: *plain*; *recorded*, RLP with the 42 recorded replies of a large language model, 2026-11, in
``replies.json``; *useless*, RLP with uniform random settings and the same forecast for every trial. Sampler, prompts,
parsing of replies, learner and weight are the product's. Regret of the recommended setting's true mean: 0 is the
table's best, 1 a median random setting. The requests say *accuracy*, also for tables of balanced accuracy. Gain:
information gain of the forecasts over the search's posterior, in nats per generation.

The replier saw only requests, and no table values but those in them. It also wrote this benchmark, wrote the replies
for all seeds of a task side by side, and knows the literature, which describes such networks. All seeds share a
task's first request and reply. Replies are stored by task, seed and generation rather than by request, so small
wording changes leave them valid. If the search changes, their forecasts no longer fit its trials: empty the file, and
``--ask FOLDER`` writes the requests without a reply into files.
"""
