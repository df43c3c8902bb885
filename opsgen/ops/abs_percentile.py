"""A percentile of the magnitudes of a tensor, by a histogram: a range for quantisation that outliers do not widen.

    m = max |x|;  count[b] = how many |x| lie in bin b of ``bins`` equal ones of [0, m]
    y = m · (b + 1) / bins,  for the first b with  count[0] + … + count[b] ≥ max(percentile / 100 · n, 1)

It is the upper end of the bin in which the percentile lies: at least that percentile (of the n sorted magnitudes, the
one at position ⌈percentile / 100 · n⌉), and by at most m / bins above it. That is the resolution: 0.05 % of the largest
magnitude with 2048 bins. The result is rounded to the type of x. `absmax` is the percentile 100.

Source: Wu et al., Integer Quantization for Deep Learning Inference: Principles and Empirical Evaluation, 2020
(arXiv:2004.09602), with histograms of 2048 bins.

Preconditions: none. Of nothing, and of zeros, it is 0; where a magnitude is NaN or infinite, it is that. Magnitudes
that lie on the border of two bins, to the rounding of a division, count for either.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def abs_percentile(x: og.Tensor["length", "columns"], *, percentile: float = 99.99, bins: int = 2048) -> og.Tensor:
    """y = the upper end of the bin in which the percentile of |x| lies"""
    over = ("length", "columns")
    magnitude = og.abs(x)
    m = og.max(og.max(magnitude, over=over), 0.0)
    ordinary = (m > 0.0) & (m < float("inf"))
    share = magnitude / og.where(ordinary, m, 1.0) * bins
    place = og.cast(og.min(og.where(ordinary, share, 0.0), bins - 1), og.int64)
    count = og.scatter_add(1, place, over=over, into="bins", extent=bins)
    up_to = og.cast(og.cumsum(count, over="bins"), og.float64)
    wanted = og.cast(og.size("length") * og.size("columns"), og.float64) * (percentile / 100.0)
    below = og.sum(og.where(up_to < og.max(wanted, 1.0), 1, 0), over="bins")
    end = og.cast(og.min(below + 1, bins), og.float64 if x.dtype == og.float64 else og.float32) / bins
    return og.cast(og.where(ordinary, m * end, m), x.dtype)


@abs_percentile.reference
def reference(x: NDArray, *, percentile: float = 99.99, bins: int = 2048) -> NDArray:
    a = np.abs(np.asarray(x, np.float64)).ravel()
    m = a.max(initial=0)
    if not 0 < m < np.inf:
        return np.asarray(m)
    count, ends = np.histogram(a, bins, range=(0, m))
    reached = np.cumsum(count) >= max(percentile / 100 * a.size, 1)
    return np.asarray(ends[1:][np.argmax(reached)] if reached.any() else m)


@abs_percentile.peer
def peer(x: Any, *, percentile: float = 99.99, bins: int = 2048) -> Any:
    import torch

    a = x.abs().flatten().to(torch.promote_types(x.dtype, torch.float32))
    if not a.numel() or not 0 < a.max() < float("inf"):
        return NotImplemented
    count = torch.histc(a, bins, 0, a.max().item()).double().cumsum(0)
    below = (count < max(percentile / 100 * a.numel(), 1)).sum()
    return (a.max() * (below + 1).clamp(max=bins) / bins).to(x.dtype)


abs_percentile.workload("Llama-3-8B hidden states, prefill", length=2048, columns=4096)
abs_percentile.workload("BERT-base hidden states", length=4096, columns=768)
