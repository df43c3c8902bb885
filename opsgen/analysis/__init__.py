"""Understand: what an op's graph is made of. Groups with patterns, and what they cost."""
