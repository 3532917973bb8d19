"""Serving: arms for requests, rewards, promotions and evidence."""
