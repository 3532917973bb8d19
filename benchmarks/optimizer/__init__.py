"""Real tasks and peers with one ask/tell interface, scored by the recommendation's true value.

Every opponent gets the same noise, seeds and budget. The score is the *true* value of the candidate
that an opponent recommends, never the best value it observed. ``README.md`` lists the commands.
"""
