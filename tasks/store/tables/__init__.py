"""Parquet tables of results, and SQL over them."""
