"""Cross entropy of logits, with the log-sum-exp of each row: loss = lse - x[target].

With label smoothing s the target counts 1 - s, and s is spread evenly over all classes; z-loss adds its weight times
lse². Both results are float32 for half types. Source: Szegedy et al., Rethinking the Inception Architecture for
Computer Vision, 2015 (arXiv:1512.00567), for the smoothing; Chowdhery et al., PaLM, 2022 (arXiv:2204.02311), for the
z-loss; torch.nn.functional.cross_entropy (documentation of PyTorch) with reduction="none".

Preconditions: none. Rows whose target is ignore_index give loss 0 (and their lse, whatever they hold); a target that is
no class gives NaN, where torch raises. Without smoothing, logits of -inf elsewhere than at the target are as good as
absent.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def cross_entropy(
    logits: og.Tensor["...", "classes"],
    targets: og.Tensor["...", og.integer],
    *,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    ignore_index: int = -100,
) -> og.Results:
    """loss = lse - (1 - s) x[target] - s mean(x) + z_loss · lse², s the label smoothing; lse = log Σ exp(x)"""
    kind = og.float64 if logits.dtype == og.float64 else og.float32
    largest = og.max(logits, over="classes")
    log_total = og.log(og.sum(og.exp(logits - largest), over="classes"))
    # A sum with one term that is not 0, in the loop of the other sums.
    chosen = og.sum(og.where(targets == og.index("classes"), logits, 0.0), over="classes")
    # Differences from the maximum first: with log_total added to it they would lose what is small beside it.
    smoothed = (1.0 - label_smoothing) * (largest - chosen)
    smoothed = smoothed + label_smoothing * (largest - og.mean(logits, over="classes"))
    lse = largest + log_total
    loss = log_total + og.where(label_smoothing == 0, largest - chosen, smoothed)
    loss = loss + og.where(z_loss == 0, 0.0, z_loss * (lse * lse))
    loss = og.where((targets >= 0) & (targets < og.size("classes")), loss, float("nan"))
    loss = og.where(targets == ignore_index, 0.0, loss)
    return og.results(loss=og.cast(loss, kind), lse=og.cast(lse, kind))


@cross_entropy.reference
def reference(
    logits: NDArray,
    targets: NDArray,
    *,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    ignore_index: int = -100,
) -> dict[str, NDArray]:
    x, targets = np.asarray(logits, np.float64), np.asarray(targets)
    with np.errstate(invalid="ignore"):
        lse = np.asarray(np.logaddexp.reduce(x, axis=-1, initial=-np.inf))
    loss = np.zeros(targets.shape)
    for at in np.ndindex(targets.shape):
        target = int(targets[at])
        if target == ignore_index:
            continue
        if not 0 <= target < x.shape[-1]:
            loss[at] = np.nan
            continue
        log_p = x[at] - lse[at]
        smooth = log_p.mean() * label_smoothing if label_smoothing else 0.0
        loss[at] = -(1 - label_smoothing) * log_p[target] - smooth + (z_loss * lse[at] ** 2 if z_loss else 0.0)
    return {"loss": loss, "lse": lse}


@cross_entropy.peer
def peer(
    logits: Any, targets: Any, *, label_smoothing: float = 0.0, z_loss: float = 0.0, ignore_index: int = -100
) -> Any:
    import torch
    from torch.nn import functional

    x = logits.reshape(-1, logits.shape[-1])
    x = x if x.dtype == torch.float64 else x.float()
    flat = targets.reshape(-1).long()
    loss = functional.cross_entropy(
        x, flat, ignore_index=ignore_index, label_smoothing=label_smoothing, reduction="none"
    )
    lse = x.logsumexp(-1)
    if z_loss:
        loss = loss + torch.where(flat == ignore_index, 0.0, z_loss * lse * lse)
    return {"loss": loss.reshape(targets.shape), "lse": lse.reshape(targets.shape)}


cross_entropy.workload("GPT-2, training", rows=1024, classes=50257)
cross_entropy.workload("Llama-3-8B, training", rows=2048, classes=128256)
cross_entropy.workload("ImageNet", rows=1024, classes=1000)
