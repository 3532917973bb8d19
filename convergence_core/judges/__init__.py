"""Language models as judges: agreement with people, trust, coverage of texts."""
