"""What was measured, as a record and as a table."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .cases import Skipped, dtype_of
from .measure import COPY, OURS, PACKED, Device, Measured
from .record import gpu, machine, now, versions
from .timing import Quantiles

FORMAT = 1
"""Of the record."""


def document(file: str | None, device: Device, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The head of a record, without results."""
    torch = device.tensors.torch
    hardware: dict[str, Any] = {"name": machine()["cpu"], "kind": "cpu"}
    if device.capability is not None:
        hardware = {"kind": "cuda", **gpu(torch, int(device.tensors.device.partition(":")[2]))}
    elif torch is not None:
        hardware["threads"] = torch.get_num_threads()
    if device.peaks is not None:
        reads = {str(size): round(value / 1e9, 1) for size, value in device.peaks.reads.items()}
        hardware["peaks"] = {"float32_gflops": round(device.peaks.flops / 1e9, 1), "read_gbs": reads}
    return {
        "format": FORMAT,
        "file": file,
        "date": now().isoformat(timespec="seconds"),
        "device": hardware,
        "machine": machine(),
        "versions": versions("torch", "triton"),
        "settings": dict(settings),
    }


def row(m: Measured) -> dict[str, Any]:
    """One case for a record: seconds a call, rates of the median, and how many times as fast as each contender."""
    case, ours = m.case, m.samples.quantiles(OURS).p50
    copy_rate = m.copied / m.samples.quantiles(COPY).p50
    least = None if m.roofline is None else m.roofline.seconds(m.flops, m.moved)
    return {
        "op": case.op,
        "workload": case.label,
        "dims": dict(case.dims),
        "dtype": dtype_of(case.kernel),
        "attributes": dict(case.kernel.attributes),
        "absent": list(case.kernel.absent),
        "scalars": dict(case.scalars),
        "arch": case.kernel.arch,
        "schedules": [g.schedule for g in case.kernel.groups],
        "checked": m.checked.to_json(),
        "seconds": {n: quantiles(m.samples.quantiles(n)) for n in m.samples.seconds},
        "ratio": {n: round(m.samples.ratio(OURS, n), 4) for n in m.samples.seconds if n != OURS},
        "flops": m.flops,
        "bytes": m.moved,
        "tflops": round(m.flops / ours / 1e12, 4),
        "gbs": None if m.moved is None else round(m.moved / ours / 1e9, 2),
        "copy_gbs": round(copy_rate / 1e9, 2),
        "of_copy": None if m.moved is None else round(m.moved / ours / copy_rate, 4),
        "of_roofline": None if least is None else round(least / ours, 4),
        "roofline": None if m.roofline is None else m.roofline.source,
        "notes": m.notes,
    }


def quantiles(q: Quantiles) -> dict[str, float]:
    """In seconds, to a nanosecond."""
    return {name: round(value, 9) for name, value in q._asdict().items()}


# -- text --------------------------------------------------------------------------------------------------------------
def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns: the first to the left, the others to the right."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = []
    for cells in (head, *rows):
        aligned = [cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(cells, widths))]
        lines.append("  ".join(aligned).rstrip())
    return "\n".join(lines)


class Part(NamedTuple):
    """Part of a table: the rows of one kernel. ``cells`` fit ``head``."""

    title: str
    head: Sequence[str]
    cells: Sequence[Sequence[str]]


def parts(rows: Sequence[Mapping[str, Any]]) -> list[Part]:
    """The rows of a record for reading, those of one kernel together."""
    peers = [n for n in dict.fromkeys(n for r in rows for n in r["ratio"]) if n not in (COPY, PACKED)]
    beside = [PACKED] * any(PACKED in r["ratio"] for r in rows) + peers
    head = ["", "time", "p20-p80", "TFLOP/s", "GB/s", "copy", "roofline", *beside, "checked"]
    found: list[Part] = []
    for title, group in itertools.groupby(rows, key=_title):
        found.append(Part(title, head, [_cells(r, beside) for r in group]))
    return found


def text(rows: Sequence[Mapping[str, Any]], skipped: Iterable[Skipped] = ()) -> str:
    """Rows of a record for reading, those of one kernel below its name, and what was not measured."""
    lines = []
    found = parts(rows)
    if found:
        first, *cells = table(found[0].head, [row for part in found for row in part.cells]).split("\n")
        lines.append(first)
        for part in found:
            lines += [part.title, *cells[: len(part.cells)]]
            cells = cells[len(part.cells) :]
    return "\n".join([*lines, *notes(rows, skipped)])


def notes(rows: Sequence[Mapping[str, Any]], skipped: Iterable[Skipped]) -> list[str]:
    """What the table leaves out: reasons, whose figures the roofline is of, and what was not measured."""
    found: dict[str, None] = {}
    for r in rows:
        for note in [*r["notes"], r["checked"]["why"]]:
            if note:
                found[f"{r['op']}: {note}"] = None
    sources = sorted({r["roofline"] for r in rows if r["roofline"]})
    lines = [*found, *([f"roofline: {'; '.join(sources)}"] if sources else [])]
    return lines + [f"not measured: {s.op}: {s.why}" for s in skipped]


def _title(r: Mapping[str, Any]) -> str:
    chosen = [str(v) if isinstance(v, str) else f"{n}={v}" for n, v in r["attributes"].items()]
    chosen += [f"without {n}" for n in r["absent"]]
    of = f" ({', '.join(chosen)})" if chosen else ""
    return f"{r['op']} {r['dtype']} {r['arch']}{of}: {' x '.join(r['dims'])}"


def _cells(r: Mapping[str, Any], beside: Sequence[str]) -> list[str]:
    ours = r["seconds"][OURS]
    return [
        f"  {'x'.join(map(str, r['dims'].values()))} {r['workload']}",
        duration(ours["p50"]),
        f"{duration(ours['p20'])}-{duration(ours['p80'])}",
        f"{r['tflops']:.3g}" if r["tflops"] < 100 else f"{r['tflops']:.0f}",
        "-" if r["gbs"] is None else f"{r['gbs']:.3g}" if r["gbs"] < 100 else f"{r['gbs']:.0f}",
        *("-" if r[n] is None else f"{100 * r[n]:.0f} %" for n in ("of_copy", "of_roofline")),
        *(f"{r['ratio'][n]:.2f}x" if n in r["ratio"] else "-" for n in beside),
        _checked(r["checked"]),
    ]


def duration(seconds: float) -> str:
    """A time for reading."""
    return f"{seconds * 1e3:.3f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.2f} us"


def _checked(c: Mapping[str, Any]) -> str:
    parts = ["small"] * (c["small"] is not None)
    if c["positions"]:
        parts.append("all" if c["positions"] == c["of"] else str(c["positions"]))
    return "+".join(parts + ["whole"] * c["whole"]) or "NOT"
