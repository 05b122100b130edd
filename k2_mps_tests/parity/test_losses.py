"""Tests losses of training on mps: their values, gradients, memory and types."""

import k2
import pytest
import torch
from k2.mps import rnnt_pruned, rnnt_pruning

from k2_mps_tests.benchmarks.step_cost import Peak
from k2_mps_tests.kernels import sources
from k2_mps_tests.parity.helpers import EPS, MPS, assert_equal_on_both, assert_same, random_fsa_vec


def _rnnt_inputs(device, dtype, B=3, S=6, T=14, C=8):
    torch.manual_seed(13)
    am = torch.randn(B, T, C).to(dtype).to(device).requires_grad_(True)
    lm = torch.randn(B, S + 1, C).to(dtype).to(device).requires_grad_(True)
    symbols = torch.randint(1, C, (B, S)).to(device)
    # The last sequence has as many symbols as frames.
    boundary = torch.tensor([[0, 0, S, T], [0, 0, S - 2, T - 3], [0, 0, 4, 4]]).to(device)
    return am, lm, symbols, boundary


def _pruned(am, lm, symbols, boundary, rnnt_type):
    """Returns the simple loss plus the pruned loss, whose ranges come from the simple loss."""
    simple, (px_grad, py_grad) = k2.rnnt_loss_simple(
        lm,
        am,
        symbols,
        termination_symbol=0,
        boundary=boundary,
        rnnt_type=rnnt_type,
        reduction="sum",
        return_grad=True,
    )
    ranges = k2.get_rnnt_prune_ranges(px_grad, py_grad, boundary, s_range=3)
    am_pruned, lm_pruned = k2.do_rnnt_pruning(am=am, lm=lm, ranges=ranges)
    return simple + k2.rnnt_loss_pruned(
        am_pruned + lm_pruned, symbols, ranges, 0, boundary, rnnt_type=rnnt_type, reduction="sum"
    )


LOSSES = {
    "rnnt_loss": lambda am, lm, symbols, boundary, rnnt_type: k2.rnnt_loss(
        am.unsqueeze(2) + lm.unsqueeze(1),
        symbols,
        0,
        boundary,
        rnnt_type=rnnt_type,
        reduction="sum",
    ),
    "simple": lambda am, lm, symbols, boundary, rnnt_type: k2.rnnt_loss_simple(
        lm, am, symbols, 0, boundary, rnnt_type=rnnt_type, reduction="sum"
    ),
    "smoothed": lambda am, lm, symbols, boundary, rnnt_type: k2.rnnt_loss_smoothed(
        lm, am, symbols, 0, 0.1, 0.2, boundary, rnnt_type=rnnt_type, reduction="sum"
    ),
    "pruned": _pruned,
}


def test_a_modified_loss_needs_one_position_for_a_frame():
    """The regular loss needs two."""
    S, T = 4, 6
    boundary = torch.tensor([[0, 0, S, T]] * 2)
    px, py = torch.randn(2, S, T), torch.randn(2, S + 1, T)
    _, grads = k2.mutual_information_recursion(px, py, boundary, return_grad=True)
    arguments = (*grads, boundary)
    expected = k2.get_rnnt_prune_ranges(*arguments, 1)
    found = k2.get_rnnt_prune_ranges(*(x.to(MPS) for x in arguments), 1)
    assert expected.shape == (2, T, 1) and torch.equal(found.cpu(), expected)


@pytest.mark.parametrize("rnnt_type", ["regular", "modified", "constrained"])
@pytest.mark.parametrize("name", LOSSES)
def test_rnnt_losses_agree_with_float64(name, rnnt_type):
    results = []
    for device, dtype in (("cpu", torch.float64), (MPS, torch.float32)):
        am, lm, symbols, boundary = _rnnt_inputs(device, dtype)
        loss = LOSSES[name](am, lm, symbols, boundary, rnnt_type)
        loss.backward()
        results.append((loss.detach(), am.grad, lm.grad))
    cpu, mps = results
    # The recursion takes about 20 steps with values of up to 60, and rounds each value to float32.
    # The normalisation of the log-probs rounds about as often.
    for a, b in zip(mps, cpu):
        assert_same(a, b.float(), atol=40 * 60 * EPS, rtol=10 * EPS)


@pytest.mark.parametrize("name", ["rnnt_loss", "simple"])
def test_losses_of_inference_mode_see_that_the_boundary_has_changed(name):
    """A tensor that inference mode made has no version, so k2 must read its values each time."""
    with torch.inference_mode():
        every = [_rnnt_inputs(device, torch.float32) for device in ("cpu", MPS)]
        for s_end in (6, 4):
            for *_, boundary in every:
                boundary[0, 2] = s_end
            cpu, mps = (LOSSES[name](*inputs, "regular") for inputs in every)
            assert_same(mps, cpu, atol=40 * 60 * EPS, rtol=10 * EPS)
        k2.mps.know_boundary(boundary, boundary.cpu() - 1)
        assert torch.equal(LOSSES[name](*every[1], "regular"), mps)


@pytest.mark.parametrize("used", [0, 1], ids=["am", "lm"])
def test_the_gradient_of_pruning_if_only_one_result_is_used(used):
    every = []
    for device in ("cpu", MPS):
        am, lm, _, _ = _rnnt_inputs(device, torch.float32)
        ranges = torch.arange(3).repeat(*am.shape[:2], 1).to(device)
        k2.do_rnnt_pruning(am, lm, ranges)[used].sum().backward()
        every.append((am.grad, lm.grad))
    cpu, mps = every
    assert_same(mps[used], cpu[used])
    assert mps[1 - used] is cpu[1 - used] is None


def test_the_gradients_of_both_results_of_pruning_may_differ():
    every = []
    for device in ("cpu", MPS):
        am, lm, _, _ = _rnnt_inputs(device, torch.float32)
        ranges = torch.arange(3).repeat(*am.shape[:2], 1).to(device)
        am_pruned, lm_pruned = k2.do_rnnt_pruning(am, lm, ranges)
        (2 * am_pruned.sum() + 3 * lm_pruned.sum()).backward()
        every.append((am.grad, lm.grad))
    cpu, mps = every
    for number in (0, 1):
        assert_same(mps[number], cpu[number])


@pytest.mark.parametrize("empty", ["sequences", "frames", "rows", "symbols"])
def test_pruning_of_nothing_is_empty(empty):
    """Metal binds no empty buffer, so the host computes the shapes of the results."""
    names = ("sequences", "frames", "rows", "symbols")
    B, T, R, C = (0 if name == empty else 2 for name in names)

    def run(device):
        am = torch.zeros(B, T, C, device=device, requires_grad=True)
        lm = torch.zeros(B, 3, C, device=device, requires_grad=True)
        ranges = torch.zeros(B, T, R, dtype=torch.int64, device=device)
        pruned = k2.do_rnnt_pruning(am, lm, ranges)
        sum(pruned).sum().backward()
        return [*pruned, am.grad, lm.grad]

    assert_equal_on_both(run)


def test_memory_of_the_pruned_loss_is_its_gradient():
    B, T, S, C, s_range = 20, 300, 60, 500, 5
    logits = torch.zeros(B, T, s_range, C, device=MPS, requires_grad=True)
    symbols = torch.ones(B, S, dtype=torch.int64, device=MPS)
    begins = torch.linspace(0, S + 1 - s_range, T).long()
    ranges = (begins[:, None] + torch.arange(s_range)).repeat(B, 1, 1).to(MPS)
    with Peak() as peak:
        loss = k2.rnnt_loss_pruned(logits, symbols, ranges, 0, reduction="sum")
        forward = peak.most
        loss.backward()
    # px, py and the shares of mutual_information.metal take 4.4 MB.  Each row of logits takes
    # another 12 bytes.
    assert 0 < forward < 10e6
    assert logits.nbytes <= peak.most < 1.05 * logits.nbytes


def test_gradients_flow_through_a_move_to_mps():
    leaf = random_fsa_vec().requires_grad_(True)
    tot = leaf.to("mps").get_tot_scores(use_double_scores=True, log_semiring=True)
    tot.sum().backward()
    assert leaf.grad.device.type == "cpu"
    other = leaf.detach().requires_grad_(True)
    other.get_tot_scores(use_double_scores=True, log_semiring=True).sum().backward()
    assert torch.equal(leaf.grad, other.grad)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast(dtype):
    """The network runs in half precision, and k2 in float32."""
    torch.manual_seed(73)
    net = torch.nn.Linear(7, 5).to("mps")
    inputs = torch.randn(1, 10, 7, device="mps")
    segments = torch.tensor([[0, 0, 10]], dtype=torch.int32)
    with torch.autocast("mps", dtype=dtype):
        output = net(inputs)
        assert output.dtype == dtype
        # autocast keeps log_softmax in float32, as on CUDA.
        log_probs = output.log_softmax(-1)
        dense = k2.DenseFsaVec(log_probs.float(), segments)
        loss = k2.ctc_loss(k2.ctc_graph([[1, 2]], device="mps"), dense)
        swoosh = k2.swoosh_l(output).sum()
        assert loss.dtype == torch.float32 and swoosh.dtype == torch.float32
    (loss + swoosh).backward()
    assert net.weight.grad.dtype == torch.float32
    assert net.weight.grad.isfinite().all()
    assert net.weight.grad.abs().sum() > 0


def _assert_largest(is_taken, number):
    """Asserts that is_taken() returns True for a number, but not for the next."""
    assert is_taken(number) and not is_taken(number + 1)


def _tensor(*shape, dtype=torch.float32):
    """Returns a tensor of any size that needs the memory of one number."""
    return torch.zeros(1, dtype=dtype, device="mps").expand(shape)


def test_the_largest_pruning_is_that_whose_threads_have_numbers_of_32_bits():
    """in_metal() repeats the sizes of threadgroups, which the header of the kernels defines."""
    row_threads = sources.enumerators("rnnt_pruning.h")["kRnntPruningBackwardThreads"]
    frame_threads = sources.enumerators("simd_width.h")["kSimdWidth"]

    def is_taken(rows, frames):
        ranges = _tensor(1, frames, 1, dtype=torch.int64)
        return rnnt_pruning.in_metal(_tensor(1, frames, 1), _tensor(1, rows, 1), ranges)

    _assert_largest(
        lambda rows: is_taken(rows, 1), (2**31 - 1 - row_threads - frame_threads) // row_threads
    )
    _assert_largest(
        lambda frames: is_taken(1, frames), (2**31 - 1 - 2 * row_threads) // frame_threads
    )


def test_the_most_symbols_are_those_whose_groups_of_frames_have_numbers_of_32_bits():
    frames = sources.enumerators("rnnt_pruned.h")["kRpFrames"]

    def is_taken(num_symbols):
        symbols = _tensor(1, num_symbols, dtype=torch.int64)
        ranges = _tensor(1, 1, 1, dtype=torch.int64)
        return rnnt_pruned.in_metal(_tensor(1, 1, 1, 1), symbols, ranges, 0, None, False)

    _assert_largest(is_taken, (2**31 - 1) // frames - 1)
