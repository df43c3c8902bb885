"""Programs that use opsgen. They run from a checkout: ``python -m examples.minilm``."""
