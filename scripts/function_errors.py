"""Measures how far functions are off, and writes docs/functions.md from what was measured.

    python scripts/function_errors.py x86/avx2 x86/avx512      measure these, and write the page
    python scripts/function_errors.py cuda --library FILE      of a library of `function_errors.library_items()`
    python scripts/function_errors.py --check                  is the page what docs/data/functions.json says?

Options: ``--count N`` arguments of float32 (default 2^24), ``--data FILE`` where the measurements are kept.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "docs" / "data" / "functions.json"
PAGE = ROOT / "docs" / "functions.md"

HEAD = """# Errors of functions

Made by `scripts/function_errors.py` from what it measured; a test measures again and compares.

The largest errors of compiled kernels, beside the function of the very same argument in float64. Of float16 and
bfloat16 all 65536 arguments are taken. Of float32 it is a sample: bits at equal distances, of all numbers and of those
with 2⁻¹² ≤ |x| < 2⁸, and the edges of ranges; the number beside each device says how many.

- **ulp**: in units of the last place of the right result, of the result's type. A result that is rounded once from the
  exact one is off by 0.5 at most. Half types are computed in float32 and then rounded: a little more.
- **at**: the argument where that is.
- **relative**: where the right result is a normal number. **absolute**: in the function's own units.
- **wrong**: how many results are infinite or NaN where the right one is not, or the other way round.

## Which form to take

| what | choices | how |
|---|---|---|
| GELU | `approximate="none"` (with erf) or `"tanh"` | attribute of `gelu` and `geglu`, as in torch |
| SiLU, tanh, exp, erf, sigmoid, … | one form for each type and target | nothing to choose |
| any function of a half type | a table of all results | op `table_lookup` |

Both forms of GELU are sums of 1 and a function that is near -1 for negative arguments. There float32 loses digits, as
torch's does, and the absolute error is what holds. On GPUs results of half types are computed as one function, which
loses none (`schedules/cuda/half_forms.py`).

In float32, elementary functions on x86 are polynomials on reduced ranges (`opsgen/lowering/vector_math.py`; with
AVX-512 `schedules/x86/elementary.py`), and on GPUs CUDA's own accurate ones. Where a result is rounded to a half type
at once, GPUs use shorter ones, which flush what lies below 2⁻¹²⁶ to 0: of bfloat16, whose smallest numbers are such,
exp and sigmoid are up to 109 ulp off there, and SiLU and GELU give 0 where the right result is about 10⁻³⁸. Square
roots and divisions are correctly rounded.

Of half types any function can be a table of its 65536 results too: the op `table_lookup`. It is exact to half an ulp
whatever the function is, and costs the same for all of them. GELU of 2²⁰ elements took, in ns of CPU time an element
(one thread of an AMD EPYC): float16 0.76 and 0.60 by table with AVX2, 0.36 and 0.76 with AVX-512; bfloat16 1.06 and
0.54 with AVX2, 0.48 and 0.56 with AVX-512.
"""


def measure(target: str, count: int, library: str | None) -> dict[str, Any]:
    """All variants in all types, and what they were measured on."""
    import opsgen as og
    from opsgen.bench import function_errors as errors

    device = "cpu"
    if target.startswith("cuda"):
        import torch

        device, name = "cuda", torch.cuda.get_device_name()
        lib = og.load(library) if library else og.compile(errors.library_items(), target, list(errors.DTYPES))
    else:
        name = _processor()
        lib = og.compile(errors.library_items(), target=target, dtypes=list(errors.DTYPES))
    rows: dict[str, dict[str, Any]] = {}
    for variant in errors.variants():
        for dtype in errors.DTYPES:
            if device == "cpu":
                compute = errors.of_numpy(lib, variant, dtype)
            else:
                compute = errors.of_torch(lib, variant, dtype, device)
            found = errors.worst(variant, dtype, compute, count, device)
            rows.setdefault(variant.name, {})[dtype] = vars(found)
    return {"device": name, "date": date.today().isoformat(), "rows": rows}


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def page(data: dict[str, Any]) -> str:
    """The whole page."""
    parts = [HEAD]
    for target in sorted(data):
        found = data[target]
        count = max(v["float32"]["count"] for v in found["rows"].values())
        parts.append(f"\n## {target}\n\n{found['device']}, {found['date']}; {count} arguments of float32.\n\n")
        parts.append("| function | type | ulp | at | relative | absolute | wrong |\n|---|---|---|---|---|---|---|\n")
        for name, kinds in found["rows"].items():
            for dtype, w in kinds.items():
                cells = (name, dtype, _ulp(w["ulp"]), f"{w['at']:.6g}", f"{w['relative']:.2g}", f"{w['absolute']:.2g}")
                parts.append(f"| {' | '.join(cells)} | {w['wrong']} |\n")
    return "".join(parts)


def _ulp(value: float) -> str:
    """Rounded up: what is said must hold."""
    return f"{value + 0.0005:.3f}" if value < 1000 else f"{value:.1e}"


def main() -> int:
    """Measures and writes the page; with --check, only says whether it is current."""
    sys.path.insert(0, str(ROOT))
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("targets", nargs="*")
    options.add_argument("--check", action="store_true")
    options.add_argument("--library")
    options.add_argument("--count", type=int, default=1 << 24)
    options.add_argument("--data", type=Path, default=DATA)
    given = options.parse_args()
    data = json.loads(given.data.read_text(encoding="utf-8")) if given.data.is_file() else {}
    for target in given.targets:
        data[target] = measure(target, given.count, given.library)
        given.data.parent.mkdir(parents=True, exist_ok=True)
        given.data.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    if given.data != DATA:
        return 0
    if given.check:
        if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page(data):
            return 0
        print(f"{PAGE} is not what its data say: run python scripts/function_errors.py", file=sys.stderr)
        return 1
    PAGE.write_text(page(data), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
