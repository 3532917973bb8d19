"""Python interface at run time."""
