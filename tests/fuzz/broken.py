"""A suite that goes wrong in every way, for testing the harness."""

import os
import random
import signal
from pathlib import Path


def prepare(folder: Path) -> None:
    """Nothing is needed."""


def case(draw: random.Random, state: None) -> str:
    what = draw.choice(["right"] * 8 + ["wrong", "crash"])
    if what == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    assert what == "right", "this is wrong"
    return what
