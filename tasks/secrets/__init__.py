"""Redaction: secrets stay out of every text that is stored or shown."""
