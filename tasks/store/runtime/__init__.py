"""The runtime state: decisions, rewards, arms and promotions."""
