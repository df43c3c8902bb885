"""Measuring a library: inputs, a check against float64, times beside what a user of torch would write, a record.

Needs what running a library needs; torch is imported where it is there, for peers and for GPUs. No TVM.
"""
