"""What a target is: hardware figures, toolchain, launcher, limits.

This folder is the package `opsgen.targets`, by the link opsgen/targets.
"""

if __name__ != "opsgen.targets":
    # Under a second name every module in here would be loaded twice, with two sets of registrations.
    raise ImportError(f"this folder is the package opsgen.targets: import opsgen.targets, not {__name__}")
