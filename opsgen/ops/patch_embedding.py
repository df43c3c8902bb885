"""Patch embedding of vision Transformers: the image in patches, each projected: y = patch · weightᵀ + bias.

Patches are ordered row by row, as a convolution with stride = patch gives them. Source: Dosovitskiy et al., An Image is
Worth 16x16 Words, 2020 (arXiv:2010.11929).

Preconditions: height and width are multiples of the patch's; the call checks it before it runs.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def patch_embedding(
    image: og.Tensor["batch", "channels", "height", "width"],
    weight: og.Tensor["hidden", "channels", "patch_height", "patch_width"],
    bias: og.Tensor["hidden"] | None = None,
) -> og.Tensor:
    """y = Σ image · weight + bias, over channels and the patch, for each patch"""
    patches = image.split("height", down=None, patch_height=og.size("patch_height"))
    patches = patches.split("width", across=None, patch_width=og.size("patch_width"))
    patches = patches.merge("down", "across", into="patches")
    y = og.transpose(
        og.dot(patches, weight, over=("channels", "patch_height", "patch_width")), "batch", "patches", "hidden"
    )
    return y if bias is None else y + bias


@patch_embedding.reference
def reference(image: NDArray, weight: NDArray, bias: NDArray | None = None) -> NDArray:
    image, weight = np.asarray(image, np.float64), np.asarray(weight, np.float64)
    (high, wide), (height, width) = weight.shape[2:], image.shape[2:]
    y = np.zeros((len(image), (height // high) * (width // wide), len(weight)))
    for p, (i, j) in enumerate(np.ndindex(height // high, width // wide)):
        patch = image[:, :, i * high : (i + 1) * high, j * wide : (j + 1) * wide]
        y[:, p] = np.tensordot(patch, weight, ((1, 2, 3), (1, 2, 3)))
    return y if bias is None else y + bias


@patch_embedding.peer
def peer(image: Any, weight: Any, bias: Any = None) -> Any:
    from torch.nn import functional

    return functional.conv2d(image, weight, bias, stride=weight.shape[2:]).flatten(2).transpose(1, 2)


patch_embedding.workload(
    "ViT-B/16, 224", batch=8, channels=3, height=224, width=224, hidden=768, patch_height=16, patch_width=16
)
patch_embedding.workload(
    "CLIP ViT-L/14, 224",
    batch=1,
    channels=3,
    height=224,
    width=224,
    hidden=1024,
    patch_height=14,
    patch_width=14,
    absent=("bias",),
)
