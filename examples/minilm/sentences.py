"""What the demo encodes: pairs of sentences, a small collection to search, and real prose for measuring."""

from __future__ import annotations

import re
from pathlib import Path

PAIRS = [
    ("A man is playing a guitar on stage.", "Someone performs music in front of an audience."),
    ("The cat sleeps on the warm windowsill.", "A kitten is napping in the sun by the window."),
    ("How do I reset my password?", "I forgot my login and need to set a new one."),
    ("The central bank raised interest rates again.", "Borrowing money has become more expensive."),
    ("The cat sleeps on the warm windowsill.", "The central bank raised interest rates again."),
    ("How do I reset my password?", "A man is playing a guitar on stage."),
]

COLLECTION = [
    "Water boils at a lower temperature high up in the mountains.",
    "The recipe calls for two eggs, flour and a pinch of salt.",
    "Bees visit flowers to collect nectar and carry pollen between them.",
    "The train to Vienna leaves from platform seven at noon.",
    "A transformer layer is made of attention and two linear maps.",
    "Regular exercise lowers the risk of heart disease.",
    "The museum is closed on Mondays and open late on Thursdays.",
    "Rust is iron oxide; it forms when iron meets water and air.",
    "She won the marathon in two hours and twenty minutes.",
    "A cache keeps the results that are likely to be needed again.",
    "The volcano erupted and covered the island with ash.",
    "Photosynthesis turns sunlight, water and carbon dioxide into sugar.",
    "The committee postponed the vote until next week.",
    "Mixing blue and yellow paint gives green.",
    "The orchestra tuned to the oboe before the concert began.",
    "Compilers rewrite a program so that it runs faster on a given machine.",
    "Put the bread dough in a warm place and let it rise for an hour.",
    "The moon's gravity causes the tides.",
    "He repaired the bicycle's flat tyre with a patch.",
    "Most of the world's fresh water is frozen in ice sheets.",
]

QUERIES = [
    "Why is the sea higher twice a day?",
    "software that optimises code for the processor",
    "How do I bake a loaf?",
]


def prose(count: int) -> list[str]:
    """The first ``count`` sentences of this repository's licence and documentation; fewer if it has fewer."""
    root = Path(__file__).resolve().parents[2]
    found: list[str] = []
    for path in (root / "LICENSE", root / "CONTRIBUTING.md", *sorted((root / "docs").glob("*.md"))):
        if not path.exists():
            continue
        text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        text = re.sub(r"^#.*$|[`*|]", "", text, flags=re.MULTILINE)
        sentences = re.split(r"(?<=[.!?:;])\s+|\n\s*\n|\n\s*- ", text)
        found.extend(s for s in (" ".join(s.split()) for s in sentences) if len(s.split()) >= 4)
    return found[:count]
