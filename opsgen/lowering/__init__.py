"""From an op's definition to TIR, and from TIR to a library."""
