"""Python's interface at run time."""
