"""Gains of training on rated answers, by model."""
