"""Feedback of people: logged answers, ratings and comparisons."""
