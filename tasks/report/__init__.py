"""Reports of a run: sections, tables, plots and result files.

Import from the modules: the report of a stored result needs neither posterior nor plots.
"""
