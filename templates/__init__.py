"""The jinja2 templates of host launchers, kernels and reports.

This folder is the package `opsgen.templates`, by the link opsgen/templates.
"""

if __name__ != "opsgen.templates":
    # Under a second name every module in here would be loaded twice, with two sets of registrations.
    raise ImportError(f"this folder is the package opsgen.templates: import opsgen.templates, not {__name__}")
