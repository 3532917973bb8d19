"""The opponents; ``registry`` names them."""
