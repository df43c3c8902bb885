"""Measurements against what a user would pick instead. Each runs from a checkout: ``python -m benchmarks.minilm``."""
