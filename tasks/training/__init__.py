"""Background training of a local model's adapters on ratings."""
