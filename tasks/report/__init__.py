"""What is written about a run: its result, the result files, plots and tables.

Import from the modules: a report of a stored result needs neither the posterior nor plots.
"""
