"""Commands on adapters, games and prompts, which learn."""
