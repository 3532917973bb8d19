"""Pages of the web application, read from the store's tables."""
