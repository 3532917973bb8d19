"""Coverage of synthetic texts: measures of collapse, alarms, their consequences.

What a system writes and then learns from narrows: words repeat, rare subjects vanish, texts become
copies (arXiv 2411.16905, §2.2 names the risk; thresholds are ours). ``measures`` says how wide a window
of texts is and how much of the space was looked at, ``alarms`` what follows.
"""
