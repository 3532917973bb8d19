"""What preferences cost: 10,000 prompts through their filters.

python -m benchmarks.sao
"""
