"""Real tasks, peers, one ask/tell interface: what is the recommended candidate truly worth?

The noise, the seeds and the budget are the same for every opponent, and what counts is the *true*
value of the candidate that an opponent hands over, never the best value it saw. ``README.md`` has
the commands.
"""
