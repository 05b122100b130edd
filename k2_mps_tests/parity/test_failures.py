"""Each kind of k2's operations raises an error if the GPU does not complete a command buffer.

Metal aborts a command buffer that takes too long, runs out of memory, or accesses memory outside
of all buffers.  torch before 2.15 does not notice an aborted command buffer.
"""

import contextlib
import sys

import k2
import pytest
import torch

from k2_mps_tests.parity import calls
from k2_mps_tests.parity.helpers import assert_equal

if sys.platform == "darwin":
    pytest.skip("only the emulated device fails on request", allow_module_level=True)
from mps_emulator import failing_command_buffer  # noqa: E402

# What torch does when it waits for an aborted command buffer.
TORCH_REPORTS = (
    pytest.raises(RuntimeError, match="MPS command buffer execution failed: Caused GPU Timeout")
    if hasattr(torch.mps, "Stream")  # torch 2.15 or newer
    else contextlib.nullcontext()
)

# k2's message has the kernel's label, then Metal's text.
MESSAGE = r"did not complete k2 \w+.*: Caused GPU Timeout Error .* not valid"


@pytest.fixture(autouse=True)
def without_a_failure_at_the_end(metal):
    yield
    # From version 2.15 on, torch also reports the failure.
    try:
        torch.mps.synchronize()
    except RuntimeError as error:
        assert "command buffer execution failed" in str(error)


def _wait():
    """Calls an operation of k2 that waits for the GPU and launches nothing."""
    k2.RaggedTensor([[1.0], [2.0]], device="mps").sum()


def _fails(call):
    """Calls a function of which the GPU completes no command buffer."""
    torch.mps.synchronize()
    with failing_command_buffer(), pytest.raises(RuntimeError, match=MESSAGE):
        call()
        _wait()


BUDGETS = calls.table("budgets.toml")


def _with_dispatches(direction):
    """Yields the operations that dispatch Metal kernels in a pass, "forward" or "backward"."""
    for name, budget in BUDGETS.items():
        passes = budget.get("metal", budget["host"])
        if direction in passes and passes[direction]["dispatches"]:
            yield name


@pytest.mark.parametrize("name", list(_with_dispatches("forward")))
def test_a_failure_in_a_forward_pass_is_an_error(name):
    call = BUDGETS[name]["call"]
    right = calls.result(call, calls.variables())
    variables = calls.variables()
    _fails(lambda: calls.result(call, variables))
    _wait()  # k2 reports a failure once.
    again = calls.result(call, calls.variables())
    assert_equal(again, right.detach().cpu().requires_grad_(right.requires_grad))


@pytest.mark.parametrize("name", list(_with_dispatches("backward")))
def test_a_failure_in_a_backward_pass_is_an_error(name):
    call = BUDGETS[name]["call"]
    total = calls.result(call, calls.variables()).sum()
    _fails(total.backward)
    _wait()


def _launch():
    px = torch.randn(2, 3, 5, device="mps", requires_grad=True)
    py = torch.randn(2, 4, 4, device="mps")
    return k2.mutual_information_recursion(px, py)


def test_a_launch_reports_an_earlier_failure():
    _launch()
    torch.mps.synchronize()
    with failing_command_buffer():
        _launch()
        # Only torch waits here, so k2 has not yet seen the failure.
        with TORCH_REPORTS:
            torch.mps.synchronize()
    with pytest.raises(RuntimeError, match=MESSAGE):
        _launch()
    _launch()
    _wait()


def test_only_the_failed_command_buffer_is_reported():
    """k2's error names each kernel of the failing command buffer once, and no other kernel."""
    _wait()
    with failing_command_buffer(3):
        for number in (1, 2, 3, 4):
            _launch()
            _launch()
            if number != 3:
                _wait()
                continue
            with pytest.raises(RuntimeError, match=MESSAGE) as caught:
                _wait()
            kernels = ("k2 mutual_information_forward", "k2 mutual_information_backward")
            assert f"complete {', '.join(kernels)}: " in str(caught.value)


def _dense(num_frames=6):
    log_probs = torch.randn(2, num_frames, 5, generator=torch.Generator().manual_seed(0))
    segments = torch.tensor([[0, 0, num_frames], [1, 0, num_frames - 1]], dtype=torch.int32)
    return k2.DenseFsaVec(log_probs.log_softmax(-1).to("mps"), segments)


def test_a_stream_decoder_is_right_after_a_failure():
    def decoder():
        graph = k2.create_fsa_vec([k2.ctc_topo(4)]).to("mps")
        return k2.OnlineDenseIntersecter(graph, 2, 8.0, 4.0, 2, 20)

    expected, _ = decoder().decode(_dense(), [None, None])
    failed = decoder()
    for _ in range(2):  # before the decoder has tables, and after it has made them
        _fails(lambda: failed.decode(_dense(), [None, None]))
        lattice, _ = failed.decode(_dense(), [None, None])
        assert_equal(lattice, expected.to("cpu"))


def test_an_index_of_a_graph_is_made_again_after_a_failure():
    def loss(graph):
        return k2.ctc_loss(graph, _dense(), reduction="none")

    graphs = [k2.ctc_graph([[1, 2], [3]], device="mps") for _ in range(2)]
    for graph in graphs:
        graph.labels[:] = graph.labels.clone()  # so the GPU makes the index
    _fails(lambda: loss(graphs[1]))
    assert_equal(loss(graphs[1]), loss(graphs[0]).cpu())


def test_scores_are_made_again_after_a_failure():
    def lattice():
        return k2.intersect_dense(k2.ctc_graph([[1, 2], [3]], device="mps"), _dense(), 10.0)

    def scores(lattice):
        return lattice.get_forward_scores(use_double_scores=True, log_semiring=True)

    expected, failed = lattice(), lattice()
    _fails(lambda: scores(failed))
    assert_equal(scores(failed), scores(expected).cpu())
