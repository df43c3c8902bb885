"""Many cases in a child process: one that crashes or hangs is named, and can be run again alone.

A suite is a module with ``prepare(folder) -> state`` and ``case(draw, state) -> None``, which raises for what is wrong.
A case depends on nothing but its number and the seed: ``python -m tests.fuzz.harness calls FOLDER SEED 17 1`` runs case
17 alone, in a folder that `prepare` may have filled before.
"""

from __future__ import annotations

import importlib
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import traceback
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_PATIENCE = 120.0  # seconds without a new case, of which one takes milliseconds
_MOST_FAILURES = 10


@dataclass
class Outcome:
    """``ran``: how many cases; ``failures``: one text each; ``counts``: of what cases came to, as they say."""

    ran: int = 0
    failures: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


def run(suite: str, folder: Path, seed: str, count: int) -> Outcome:
    """Runs cases 0 to ``count`` - 1; goes on behind one that ends the process."""
    outcome, first = Outcome(), 0
    while first < count and len(outcome.failures) < _MOST_FAILURES:
        first = _child(suite, folder, seed, first, count, outcome)
    return outcome


def _child(suite: str, folder: Path, seed: str, first: int, count: int, outcome: Outcome) -> int:
    """Runs cases from ``first`` on in one process; gives the number of the next one."""
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.fuzz.harness", suite, str(folder), seed]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [*command, str(first), str(count - first)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        cwd=ROOT, env=variables,
    ) as child:  # fmt: skip
        lines: queue.Queue[str | None] = queue.Queue()
        said: list[str] = []
        assert child.stdout and child.stderr
        readers = [
            threading.Thread(target=_read, args=(child.stdout, lines.put)),
            threading.Thread(target=said.extend, args=(child.stderr,)),
        ]
        for reader in readers:
            reader.start()
        number, ended = first - 1, False
        while True:
            try:
                line = lines.get(timeout=_PATIENCE)
            except queue.Empty:
                child.kill()
                outcome.failures.append(f"case {number} of seed {seed} hangs")
                break
            if line is None:
                break
            kind, _, text = line.partition(" ")
            if kind == "case":
                number = int(text)
                outcome.ran += 1
            elif kind == "wrong":
                outcome.failures.append(f"case {number} of seed {seed}: {text.replace(chr(1), chr(10))}")
            elif kind == "count":
                outcome.counts[text] = outcome.counts.get(text, 0) + 1
            ended = ended or kind == "end"
        status = child.wait()
        for reader in readers:
            reader.join()
    if not ended and not (outcome.failures and outcome.failures[-1].endswith("hangs")):
        how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        last = "".join(said)[-2000:]
        outcome.failures.append(f"case {number} of seed {seed} ends the process: {how}\n{last}")
    return count if ended else max(number, first) + 1


def _read(stream: object, put: object) -> None:
    for line in stream:  # type: ignore[attr-defined]
        put(line.rstrip("\n"))  # type: ignore[operator]
    put(None)  # type: ignore[operator]


def main() -> None:
    """The child."""
    name, folder, seed, first, count = sys.argv[1:]
    suite = importlib.import_module(f"tests.fuzz.{name}")
    state = suite.prepare(Path(folder))
    wrong = 0
    for number in range(int(first), int(first) + int(count)):
        os.write(1, f"case {number}\n".encode())
        try:
            came_to = suite.case(random.Random(f"{seed}/{number}"), state)
        except Exception:
            text = traceback.format_exc()[-3000:].replace("\n", "\1")
            os.write(1, f"wrong {text}\n".encode(errors="replace"))
            wrong += 1
            if wrong >= _MOST_FAILURES:
                break
        else:
            os.write(1, f"count {came_to}\n".encode())
    os.write(1, b"end\n")


if __name__ == "__main__":
    main()
