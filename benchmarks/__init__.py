"""Benchmarks: `python -m benchmarks NAME` builds its tables, runs us and the peers alternately, prints ratios."""
