"""Chat in the terminal, or line by line through a pipe."""
