"""SAO: preferences that the system writes and judges itself, and what they may touch.

After "Self-Alignment Optimization for Language Models" (arXiv 2510.06652): a model writes prompts in
persona, answers each twice and ranks its own answers. Departures, each in its module: both orders
are judged, position and length are modelled, every row passes filters, and nothing that comes of it
may move a reward or the final ranking. Who asks the model is in ``tasks.sao``.

==================  ===============================================================
``personas``        a million personas, walked through without a repeat
``templates``       what prompt writer, judge and distiller are asked
``preferences``     comparisons, judgements in both orders, preferences
``bradley_terry``   merits with position and length (Bradley & Terry 1952)
``pooled``          what the judgements pooled say of the judge; when to abort
``filters``         seven filters in order, each with a counter
``duplicates``      MinHash finds, exact Jaccard decides
``diversity``       which personas are asked next
``rounds``          frozen audit tenth, rounds and their stop rules
``grounding``       pairs whose truth was executed
``state``           what is kept between rounds, and what a round teaches
``shape``           where a prompt stands in a test case
``rows``            tables, and back
``formats``         rows that trainers read, and back
``report``          what people are told
==================  ===============================================================
"""
