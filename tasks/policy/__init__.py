"""Served policy: decisions, durable experiences, updates, embeddings of prompts."""
