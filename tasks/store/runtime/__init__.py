"""Runtime state: arms, decisions, rewards and promotions."""
