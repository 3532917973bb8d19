"""Test cases as other tools keep them."""
