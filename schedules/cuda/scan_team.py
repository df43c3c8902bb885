"""Threads that scan together: what each thread's value makes with those of the threads before it.

Who adds what to what depends on nothing but the sizes, so that sums are the same from run to run. With ``reverse``, the
threads after it are before it.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx

from opsgen.lowering.statements import Code, Expr, add, constant, i64, mul, sub
from opsgen.lowering.to_tir import Memory
from opsgen.targets.cuda import WARP

from .kernels import DeviceKernel, call, rounds, synchronize

Join = Callable[[Expr, Expr], Expr]

Emit = Callable[[Memory, Expr], None]
"""Stores a value of the element at hand in a memory."""


class ScanTeam:
    """``size`` threads side by side: a warp, or all warps of the block.

    ``rank`` is the warp's place in the team in the order of the scan, ``number`` the team's in the block.
    """

    def __init__(self, kernel: DeviceKernel, size: int, reverse: bool) -> None:
        self.kernel = kernel
        self.size = size
        self.reverse = reverse
        self.teams = kernel.threads // size
        self.warps = size // WARP
        code = kernel.code
        self.lane = code.bind(tirx.truncmod(kernel.thread, i64(WARP)), "lane")
        self.number = i64(0) if self.teams == 1 else code.bind(tirx.truncdiv(kernel.thread, i64(size)), "team")
        warp = code.bind(tirx.truncdiv(kernel.thread, i64(WARP)), "warp") if self.warps > 1 else i64(0)
        self.warp = warp
        self.rank = code.bind(sub(i64(self.warps - 1), warp), "rank") if reverse else warp
        self.order = code.bind(sub(i64(WARP - 1), self.lane), "order") if reverse else self.lane
        self._shared: dict[str, object] = {}

    def before(self, code: Code, value: Expr, distance: int) -> Expr:
        """The value of the lane that is ``distance`` before; of the first ones, any."""
        name = "opsgen_from_above" if self.reverse else "opsgen_from_below"
        return code.bind(call(value.ty.dtype, name, value, constant(distance, "int32")))

    def of(self, code: Code, value: Expr, place: Expr) -> Expr:
        """The value of the lane at a place in the order of the scan."""
        at = sub(i64(WARP - 1), place) if self.reverse else place
        return code.bind(call(value.ty.dtype, "opsgen_from_lane", value, tirx.Cast("int32", at)))

    def warp_scan(self, code: Code, value: Expr, join: Join) -> Expr:
        """What the lanes up to this one make, its own value included."""
        for distance in reversed(rounds()):
            other = self.before(code, value, distance)
            value = code.bind(tirx.Select(self.order >= i64(distance), join(other, value), value))
        return value

    def exclusive(self, code: Code, inclusive: Expr, nothing: Expr) -> Expr:
        """What the lanes before this one make."""
        return code.bind(tirx.Select(self.order > i64(0), self.before(code, inclusive, 1), nothing))

    def across(self, code: Code, total: Expr, nothing: Expr, join: Join, parity: Expr, key: str) -> tuple[Expr, Expr]:
        """From each warp's total: what the warps before this one make, and what all of them do.

        ``parity`` differs from one use to the next, so that nobody overwrites what others still read.
        """
        if self.warps == 1:
            return nothing, total
        dtype = total.ty.dtype
        if key not in self._shared:
            self._shared[key] = self.kernel.shared(dtype, 2 * self.warps, "totals")
        buffer = self._shared[key]
        base = code.bind(mul(parity, i64(self.warps)), "side")
        with code.when(tirx.EQ(self.lane, i64(0))) as first:
            first.store(buffer, total, add(base, self.rank))
        synchronize(code)
        slot = tirx.Min(self.order, i64(self.warps - 1))
        mine = code.bind(tirx.BufferLoad(buffer, [add(base, slot)]))
        inclusive = self.warp_scan(code, mine, join)
        whole = self.of(code, inclusive, i64(self.warps - 1))
        earlier = self.of(code, inclusive, tirx.Max(sub(self.rank, i64(1)), i64(0)))
        return code.bind(tirx.Select(self.rank > i64(0), earlier, nothing)), whole
