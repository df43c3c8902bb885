"""all-MiniLM-L6-v2, a sentence encoder, on an op library compiled on this machine. ``python -m examples.minilm``."""
