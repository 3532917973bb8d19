"""What a large language model's hypotheses bring on real tasks, replayed from its recorded replies.

    python -m benchmarks.rlp.recorded

Six tables of trained networks of the search's benchmark, three seeds, three generations of eight candidates with
eight test cases each (a case is one training seed, drawn), the defaults in the first generation. Three ways,
paired by seed: *plain*; *recorded*, RLP with the 42 recorded replies of a large language model, 2026-11, in
``replies.json``; *useless*, RLP with settings drawn uniformly and the same forecast for every trial. Sampler,
prompts, reading of replies, learner and weight are the product's own. Regret, of the recommended setting's true
mean: 0 is the best of the table, 1 a median random setting. The requests say *accuracy*, also for tables of
balanced accuracy. Gain: information gain of the forecasts over the search's posterior in nats a generation.

The replier saw requests alone and no value of a table but those in them. It also wrote this benchmark, wrote the
replies of all seeds of a task side by side, and knows the literature, in which such networks occur. The first request of a task is the same for all seeds, and so is
its reply. Replies are kept by task, seed and generation rather than by the request's text: small changes of
the words leave them valid. A change of the search makes their forecasts meet other trials; then empty the
file, and ``--ask FOLDER`` writes the requests that have no reply into files.
"""
