"""Browser sessions of a provider, and scripts that run in them."""
