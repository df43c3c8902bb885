"""How a pattern runs on a target.

This folder is the package `opsgen.schedules`, by the link opsgen/schedules.
"""

if __name__ != "opsgen.schedules":
    # Under a second name every module in here would be loaded twice, with two sets of registrations.
    raise ImportError(f"this folder is the package opsgen.schedules: import opsgen.schedules, not {__name__}")
