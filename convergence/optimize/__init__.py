"""What the Python interface and the command line share to execute a run."""
