"""Commands on what learns: adapters and prompts."""
