"""Average pooling of an image: the mean of each window of size · size, which do not overlap.

Source: torch.nn.functional.avg_pool2d (documentation of PyTorch), with stride = kernel size.

Preconditions: height and width are multiples of size; the call checks it before it runs.
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def avg_pool_2d(
    image: og.Tensor["batch", "channels", "height", "width"], *, size: Literal[2, 3, 4, 7, 8] = 2
) -> og.Tensor:
    """y = mean of image over each window"""
    windows = image.split("height", down=None, inner_height=size).split("width", across=None, inner_width=size)
    return og.mean(windows, over=("inner_height", "inner_width"))


@avg_pool_2d.reference
def reference(image: NDArray, *, size: int = 2) -> NDArray:
    total = sum(np.asarray(image, np.float64)[:, :, i::size, j::size] for i in range(size) for j in range(size))
    return np.asarray(total) / size**2


@avg_pool_2d.peer
def peer(image: Any, *, size: int = 2) -> Any:
    from torch.nn import functional

    return functional.avg_pool2d(image, size)


avg_pool_2d.workload("DenseNet-121 transition", batch=8, channels=256, height=56, width=56)
avg_pool_2d.workload("ResNet-50 head", batch=8, channels=2048, height=7, width=7, attributes={"size": 7})
