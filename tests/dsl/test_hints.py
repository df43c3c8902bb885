"""What a definition hears that uses a name of torch or numpy, or one that is nearly right."""

from collections.abc import Callable
from typing import Any

import pytest

import opsgen as og


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (lambda x: x.mean(over="n"), r"a tensor of a definition has no 'mean'\. It is a function: og\.mean\(x"),
        (lambda x: x.T, r"has no 'T'\. Dims go by name"),
        (lambda x: x.reshape(3), r"has no 'reshape'\. Use x\.split"),
        (lambda x: og.einsum("n->", x), r"no attribute 'einsum'\. Use og\.dot"),
        (lambda x: og.clamp(x, 0), r"no attribute 'clamp'\. Use og\.min\(og\.max"),
        (lambda x: og.sigmiod(x), r"no attribute 'sigmiod'\. Did you mean og\.sigmoid\?"),
        (lambda x: x.nothing_like_it, r"has no 'nothing_like_it'\. Correct it"),
        (lambda x: [].nothing, r"'list' object has no attribute 'nothing'\. Correct it"),
    ],
)  # fmt: skip
def test_what_to_write_instead(body: Callable[[Any], Any], said: str) -> None:
    def f(x: og.Tensor["rows", "n"]) -> Any:
        return body(x)

    with pytest.raises(og.errors.DefinitionError, match=rf"E1010: .*{said}"):
        og.op(f)


@pytest.mark.parametrize(
    ("target", "fix"),
    [
        ("sm_80", r"Name cuda/sm_80\."),
        ("cuda", r"Name cuda/compute_80 or another of cuda\."),
        ("avx512", r"Name x86/avx512\."),
        ("h10", r"Name h100\."),
        ("riscv64", r"Name one of them\."),
    ],
)
def test_targets(target: str, fix: str) -> None:
    @og.op
    def f(x: og.Tensor["n"]) -> Any:
        return x

    with pytest.raises(og.errors.TargetError, match=rf"E2001: unknown target '{target}'; .*{fix}$"):
        og.compile(f, target=target)


def test_what_is_no_op() -> None:
    with pytest.raises(og.errors.CompileError, match=r"E3009: nothing to compile: 'rms_norm' is no op"):
        og.compile("rms_norm")  # type: ignore[arg-type]

    @og.op
    def f(x: og.Tensor["n"]) -> Any:
        return x

    with pytest.raises(og.errors.CompileError, match=r"E3009: nothing to compile: <opsgen.Library .*> is no op"):
        og.compile(og.compile(f))  # type: ignore[arg-type]
