"""k2 raises an error for wrong inputs, and works afterwards."""

from collections.abc import Callable
from typing import NamedTuple

import k2
import pytest
import torch

from k2_mps_tests.parity.helpers import MPS, random_fsa_vec


def _i32(values, device):
    return torch.tensor(values, dtype=torch.int32, device=device)


class Refused(NamedTuple):
    """A call with wrong inputs, and the exception that k2 raises."""

    call: Callable[[], object]
    message: str  # a regular expression; part of the exception's message
    error: type[Exception] = RuntimeError


REFUSED = {
    "index_on_the_cpu": Refused(
        lambda: k2.index_select(torch.randn(4, device="mps"), _i32([0], "cpu")),
        r"Expected in the same device Given : mps:0, cpu",
    ),
    "index_of_int64": Refused(
        lambda: k2.index_select(torch.randn(4, device="mps"), torch.tensor([0], device="mps")),
        r"Expected type int32_t Given : Long",
    ),
    "index_add_on_the_cpu": Refused(
        lambda: k2.index_add(
            _i32([0], "cpu"), torch.ones(1, device="mps"), torch.ones(3, device="mps")
        ),
        r"Contexts are not compatible: kCpu and kMps",
    ),
    "row_splits_of_int64": Refused(
        lambda: k2.ragged.create_ragged_shape2(row_splits=torch.tensor([0, 2], device="mps")),
        r"Expected a tensor of Int, dim: 1\. Given: .* of Long",
    ),
    "ragged_values_on_the_cpu": Refused(
        lambda: k2.RaggedTensor(k2.RaggedShape("[[x x] [x]]").to("mps"), torch.zeros(3)),
        r"IsCompatible\(shape, values\)",
    ),
    "ragged_index_on_the_cpu": Refused(
        lambda: k2.RaggedTensor([[1], [2]], device="mps").index(_i32([0], "cpu"), axis=0),
        r"IsCompatible\(src, new2old\)",
    ),
    "ragged_tensors_of_two_devices": Refused(
        lambda: k2.ragged.cat(
            [k2.RaggedTensor([[1]], device=device) for device in ("cpu", "mps")], axis=0
        ),
        r"IsCompatible\(\*src\[0\], \*src\[i\]\)",
    ),
    "a_segment_before_the_first_frame": Refused(
        lambda: k2.DenseFsaVec(torch.zeros(1, 4, 4, device="mps"), _i32([[0, -1, 2]], "cpu")),
        r"^Row \[0, -1, 2\] of supervision_segments .* does not fit log_probs",
        AssertionError,
    ),
    "swoosh_of_an_unknown_device": Refused(
        lambda: k2.swoosh_l(torch.randn(3, device="meta")), r"\(meta vs\. cuda\)"
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_an_exception(name):
    refused = REFUSED[name]
    with pytest.raises(refused.error, match=refused.message):
        refused.call()
    # k2 still works.
    fsas = random_fsa_vec(1).to("mps")
    scores = fsas.get_tot_scores(use_double_scores=True, log_semiring=True)
    assert scores.device == MPS


@pytest.mark.parametrize("graph, scores", [("cpu", "mps:0"), ("mps:0", "cpu")])
def test_two_devices_are_refused_in_one_line(graph, scores, capfd):
    """The error is an exception of one line, and k2 prints nothing."""
    dense = k2.DenseFsaVec(torch.zeros(1, 4, 4, device=scores), _i32([[0, 0, 4]], "cpu"))
    with pytest.raises(RuntimeError, match=r"^Check failed: .* \[\w+\.(cc|h):\d+\]$"):
        k2.intersect_dense(k2.ctc_graph([[1]], device=graph), dense, 10)
    assert capfd.readouterr() == ("", "")


# A row of a boundary is the first symbol and frame, then the ends of both.
@pytest.mark.parametrize(
    "row", [(-1, 0, 3, 5), (2, 0, 1, 5), (0, 0, 4, 5), (0, -1, 3, 5), (0, 4, 3, 3), (0, 0, 3, 6)]
)
@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_a_wrong_boundary_is_refused(device, row):
    """The boundary leaves the 3 symbols and 5 frames, or ends before it begins."""
    lm, am = torch.zeros(1, 4, 2, device=device), torch.zeros(1, 5, 2, device=device)
    symbols = torch.ones(1, 3, dtype=torch.int64, device=device)
    with pytest.raises((AssertionError, RuntimeError)):
        k2.rnnt_loss_smoothed(lm, am, symbols, 0, boundary=torch.tensor([row], device=device))
