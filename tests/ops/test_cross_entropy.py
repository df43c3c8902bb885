"""Cross entropy of rows that are ignored, smoothed, masked or wrong, evaluated and compiled."""

from typing import Any

import numpy as np
import pytest

import opsgen as og
from opsgen.ops import cross_entropy

INF, NAN = np.inf, np.nan


@pytest.fixture(scope="module")
def lib() -> Any:
    return og.compile(cross_entropy, target="x86", dtypes=["float32"])


def assert_as_wanted(lib: Any, x: Any, targets: Any, wanted: Any, **options: float) -> None:
    """Losses by hand, of the definition, the reference and the kernel alike."""
    x, targets = np.asarray(x, np.float32), np.asarray(targets, np.int64)
    found = lib.cross_entropy(x, targets, **options)
    for y in (
        cross_entropy.evaluate(x, targets, **options),
        cross_entropy.expected(x, targets, **options),
        found._asdict(),
    ):
        np.testing.assert_allclose(y["loss"], wanted, rtol=1e-6)
        np.testing.assert_allclose(y["lse"], found.lse, rtol=1e-6)


def test_an_ignored_row_is_zero_whatever_it_holds(lib: Any) -> None:
    x = [[0, 0], [NAN, INF], [0, 0]]
    assert_as_wanted(lib, x, [1, -100, -100], [np.log(2), 0, 0])
    two = np.log(2)
    assert_as_wanted(lib, x, [1, -100, -100], [two + 0.5 * two**2, 0, 0], z_loss=0.5, label_smoothing=0.25)


def test_a_target_that_is_no_class_gives_nan(lib: Any) -> None:
    assert_as_wanted(lib, np.zeros((3, 2)), [2, -1, 0], [NAN, NAN, np.log(2)])


def test_masked_logits_are_absent_unless_labels_are_smoothed(lib: Any) -> None:
    x = [[0, -INF, 0], [0, -INF, 0]]
    assert_as_wanted(lib, x, [0, 1], [np.log(2), INF])
    assert_as_wanted(lib, x, [0, 1], [INF, INF], label_smoothing=0.1)


def test_logits_that_are_large_beside_their_differences(lib: Any) -> None:
    # lse - x[target] in float32 would be 0.6875
    assert_as_wanted(lib, np.full((1, 2), 2.0**20), [1], [np.log(2)])


def test_smoothed_labels_and_z_loss_are_as_in_torch(lib: Any, torch: Any) -> None:
    rng = np.random.default_rng(0)
    x, targets = rng.standard_normal((9, 37)).astype(np.float32), rng.integers(0, 37, 9)
    targets[4] = -100
    wanted = cross_entropy.peers["torch"](
        torch.from_numpy(x).double(), torch.from_numpy(targets), label_smoothing=0.1, z_loss=0.01
    )
    assert_as_wanted(lib, x, targets, wanted["loss"].numpy(), label_smoothing=0.1, z_loss=0.01)
