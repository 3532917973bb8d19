"""Language models as judges: agreement with people, trust."""
