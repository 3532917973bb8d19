"""Reports of a run: sections, tables, plots and result files.

Import from the modules: a report of a stored result needs neither the posterior nor plots.
"""
