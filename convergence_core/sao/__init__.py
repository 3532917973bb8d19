"""SAO: synthetic preference data with judge audits (after arXiv 2510.06652).

A model writes prompts in persona, answers each twice and ranks its own answers. Departures, each in its
module: both orders are judged, every row passes filters, and no result may move a reward or the final
ranking. Calls are made in ``tasks.sao``.

==================  ===============================================================
``personas``        a million personas, walked through without a repeat
``templates``       prompts for the writer, the judge and the distiller
``preferences``     comparisons, judgements in both orders; abort rule of a round
``filters``         seven filters in order, each with a counter
``duplicates``      near duplicates: MinHash and exact Jaccard
``executed_items``  pairs whose truth was executed, for the judge's audit
``played_items``    the judge's verdicts in rounds of games
``history``         prompts and judgements of earlier rounds
``round_plan``      requests of a round
``round_result``    result of a round
``state``           state between rounds
``prompt_shape``    position of the prompt in a test case
``rows``            tables, and back
``formats``         rows that trainers read
``report``          summary for people
==================  ===============================================================
"""
