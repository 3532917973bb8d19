"""Pages of the web application: what each shows, read from the store's tables."""
