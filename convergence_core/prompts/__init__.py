"""Written prompts: operators, invariants, demonstrations, choice of edits.

A text parameter with ``mutate`` gains prompts during a run. ``editor`` chooses parameter, parent
and operator and writes the request. ``tasks.prompts`` sends it. ``invariants`` decides whether the
answer becomes a variant in the search space. The posterior estimates a prompt's value, as for any
other value.
"""
