"""Parts of the optimizer for programs of your own."""
