"""Redaction: no stored or shown text holds a secret."""
