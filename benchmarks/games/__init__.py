"""Language games: what a table learns, what the meta-critic keeps, what plays cost."""
