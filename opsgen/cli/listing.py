"""`opsgen list`: ops, targets and schedules, or what a library file holds."""

from __future__ import annotations

import argparse
from typing import Any

from ..analysis.partition import partition
from ..ops import all_ops
from .output import OK, Block, Heading, Table, print_json, readable, show


def run(arguments: argparse.Namespace) -> int:
    """The command."""
    found = library(arguments.file) if arguments.file is not None else everything()
    if arguments.json:
        print_json(found)
    else:
        show(_library_blocks(found) if arguments.file is not None else _everything_blocks(found))
    return OK


# -- what there is -----------------------------------------------------------------------------------------------------
def everything() -> dict[str, Any]:
    """The standard ops, the targets, and the schedules of each kind (None without TVM)."""
    from opsgen.targets.names import ALIASES, known

    ops = [
        {"name": op.name, "call": op.call_form(), "doc": (op.__doc__ or "").strip().split("\n")[0]}
        for op in all_ops().values()
    ]
    targets = [f"{kind}/{arch}" for kind, archs in known().items() for arch in archs]
    return {"ops": ops, "targets": targets, "host": _host(), "aliases": dict(ALIASES), "schedules": _schedules(targets)}


def _host() -> str | None:
    """What the target "x86" stands for here."""
    from opsgen.targets.x86 import host_arch

    from ..errors import TargetError

    try:
        return f"x86/{host_arch()}"
    except TargetError:
        return None


def _schedules(targets: list[str]) -> list[dict[str, Any]] | None:
    try:
        import tvm  # noqa: F401
    except ImportError:
        return None
    from opsgen.targets.names import parse

    from ..compiler.plan import schedules_for

    groups = [g for op in all_ops().values() for g in partition(op.trace()).groups]
    found: dict[str, dict[str, Any]] = {}
    for name in targets:
        (target,) = parse(name)
        for schedule in schedules_for(target):
            entry = found.setdefault(schedule.name, {**schedule.describe(), "defaults": {}})
            entry["knobs"] = {knob: list(values) for knob, values in schedule.knobs.items()}
            group = next((g for g in groups if g.pattern == schedule.pattern and schedule.serves(g, target.arch)), None)
            if group is not None:
                entry["defaults"][str(target)] = dict(schedule.default(group, target.arch))
    return list(found.values())


def _everything_blocks(found: dict[str, Any]) -> list[Block]:
    targets = [(t, "this host: x86" if t == found["host"] else "") for t in found["targets"]]
    aliases = [(alias, f"= {target}") for alias, target in found["aliases"].items()]
    blocks: list[Block] = [
        Heading("ops"),
        Table([(op["call"], op["doc"]) for op in found["ops"]], indent=2),
        "",
        Heading("targets"),
        Table(targets + aliases, indent=2),
        "",
        Heading("schedules"),
    ]
    if found["schedules"] is None:
        return [*blocks, '  listing them needs TVM: pip install "opsgen[compile]"']
    for s in found["schedules"]:
        blocks.append(Table([(f"{s['name']}: {s['region']}",)], indent=2))
        knobs = [
            (knob, f"{', '.join(map(str, values))}; default {_default(knob, s['defaults'])}")
            for knob, values in s["knobs"].items()
        ]
        blocks.append(Table(knobs, indent=4))
    return blocks


def _default(knob: str, defaults: dict[str, dict[str, int]]) -> str:
    """One value where all targets have the same."""
    values = {target: config[knob] for target, config in defaults.items() if knob in config}
    if len(set(values.values())) == 1:
        return str(next(iter(values.values())))
    return ", ".join(f"{value} for {target}" for target, value in values.items()) or "none"


# -- a library file ----------------------------------------------------------------------------------------------------
def library(path: str) -> dict[str, Any]:
    """What a library file holds, from its manifest alone: none of its code is loaded.

    Raises:
        CallError: E4011, E4012, E4013, E4016, E4021.
    """
    import os

    from ..runtime.library_file import read_manifest

    manifest = read_manifest(path)
    return {"file": path, "bytes": os.path.getsize(path), **manifest.to_json()}


def _library_blocks(found: dict[str, Any]) -> list[Block]:
    blocks: list[Block] = [
        Heading(f"{found['file']}: {readable(found['bytes'])}, {found['kind']} for {', '.join(found['archs'])}"),
        f"written by opsgen {found['opsgen']} at {found['created']}",
        Table([(", ".join(v if v.startswith(f"{n} ") else f"{n} {v}" for n, v in found["tools"].items()),)], indent=2),
    ]
    for name, signature in found["ops"].items():
        called = f"{name}({', '.join(p['name'] for p in signature['params'])})"
        blocks += ["", Heading(f"{called}  {signature['doc']}".rstrip())]
        for k in found["kernels"]:
            if k["op"] == name:
                blocks += _kernel_blocks(k)
    return blocks


def _kernel_blocks(k: dict[str, Any]) -> list[Block]:
    chosen = [f"{n}={v!r}" for n, v in k["attributes"].items()] + (
        [f"without {', '.join(k['absent'])}"] if k["absent"] else []
    )
    tensors = [f"{t['name']} {t['dtype']}[{', '.join(map(str, t['dims']))}]" for t in (*k["inputs"], *k["outputs"])]
    lines = [f"region: {' and '.join(k['region']) or 'any size'}; workspace: {k['workspace']} bytes"]
    lines += [f"wanted: {c['expr']} ({c['message']})" for c in k["constraints"]]
    for g in k["groups"]:
        launches = g["launches"] if isinstance(g["launches"], list) else []
        count = len(launches) if isinstance(g["launches"], list) else g["launches"]
        lines.append(f"{g['schedule']} ({count} launch{'es' * (count != 1)})")
        lines += [f"  {launch}" for launch in launches]
    first = Table([(f"{k['arch']}: {'; '.join([*chosen, ', '.join(tensors)])}",)], indent=2)
    return [first, Table([(line,) for line in lines], indent=4)]
