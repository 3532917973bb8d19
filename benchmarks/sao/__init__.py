"""What preferences cost and bring: their filters, and a judge's say in the draws.

python -m benchmarks.sao                    the judge among the draws, 100 seeds
python -m benchmarks.sao --arms             the same on twenty arms that were all judged
python -m benchmarks.sao --filters          10,000 prompts through the filters
"""
