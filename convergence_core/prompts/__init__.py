"""Written prompts: operators, invariants, demonstrations, choice of edits.

A text parameter with ``mutate`` gains texts while a run continues. ``editor`` chooses parameter,
parent and operator and writes the request; ``tasks.prompts`` has it answered; ``invariants`` says
whether the answer becomes a variant of the search space. What a text is worth is the posterior's
to say, as of any other value.
"""
