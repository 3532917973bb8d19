"""SAO: synthetic preference data with judge audits (after arXiv 2510.06652).

A model writes prompts in persona, answers each twice and ranks its own answers. Departures, each in its
module: both orders are judged, position and length are modelled, every row passes filters, and nothing that
comes of it may move a reward or the final ranking. Calls are made in ``tasks.sao``.

==================  ===============================================================
``personas``        a million personas, walked through without a repeat
``diversity``       choice of the next ones
``templates``       prompts for the writer, the judge and the distiller
``preferences``     comparisons, judgements in both orders, judged pairs
``judge_bias``      position and length; when a round is aborted
``filters``         seven filters in order, each with a counter
``duplicates``      near duplicates: MinHash and exact Jaccard
``executed_items``  pairs whose truth was executed, for the judge's audit
``history``         texts and judgements of earlier rounds
``round_plan``      what a round asks
``round_result``    what it leaves
``rounds``          their count and stop rules
``state``           what is kept between rounds
``prompt_shape``    where a prompt stands in a test case
``rows``            tables, and back
``formats``         rows that trainers read, and back
``report``          summary for people
==================  ===============================================================
"""
