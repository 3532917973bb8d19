"""What training on rated answers gains, by model."""
