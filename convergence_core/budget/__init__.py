"""Budget arithmetic: tokens, prices, limits and rates."""
