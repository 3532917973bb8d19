"""What a run is given: configuration, test cases, prices, environment."""
