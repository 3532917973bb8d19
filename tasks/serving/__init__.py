"""Optimized systems at run time: arms, rewards, promotions, evidence."""
