"""After k2_mac.install_ctc_loss(), torch's ctc_loss gives the CPU's results on mps."""

import pytest
import torch
import torch.nn.functional as F

import k2_mac
from k2_mps_tests.parity.helpers import MPS

NUM_FRAMES, NUM_SEQUENCES, NUM_SYMBOLS = 12, 4, 6
# The third sequence has no path, because it has one frame for two labels.
FRAMES = (12, 7, 1, 9)
LENGTHS = (3, 0, 2, 4)

# The reference is torch in float64, because torch in float32 is less exact than k2.  A loss is
# rounded to float32 once, and again in each step of a reduction.
LOSS = {"rtol": 4e-7, "atol": 0, "equal_nan": True}
GRADIENT_ERROR = 1e-6  # relative to the largest element of the gradient, as in test_ctc.py


# Whether torch has its own kernel of ctc_loss for mps.
NATIVE = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 14)


@pytest.fixture(autouse=True)
def installed(placement):
    k2_mac.install_ctc_loss(force=True)
    yield
    k2_mac.uninstall_ctc_loss()


def _log_probs(*shape):
    return torch.randn(*shape).log_softmax(-1)


def _targets(blank):
    labels = [label for label in range(NUM_SYMBOLS) if label != blank]
    return torch.tensor([[labels[i] for i in (0, 0, 1, 2, 3)]] * NUM_SEQUENCES)


def _run(device, log_probs, targets, *lengths, **options):
    leaf = log_probs.detach().to(device).requires_grad_(True)
    loss = F.ctc_loss(leaf, targets.to(device), *lengths, **options)
    assert loss.device.type == device and loss.dtype == log_probs.dtype
    # The loss of each sequence has a different gradient.
    (loss * torch.arange(1, loss.numel() + 1, device=device).reshape(loss.shape)).sum().backward()
    return loss.detach().cpu(), leaf.grad.cpu()


def _assert_as_torch(log_probs, targets, *lengths, **options):
    loss, grad = _run("mps", log_probs, targets, *lengths, **options)
    exact = _run("cpu", log_probs.double(), targets, *lengths, **options)
    expected, expected_grad = (tensor.float() for tensor in exact)
    torch.testing.assert_close(loss, expected, **LOSS)
    atol = GRADIENT_ERROR * expected_grad.nan_to_num().abs().max().item()
    torch.testing.assert_close(grad, expected_grad, rtol=0, atol=atol, equal_nan=True)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("blank", [0, 1, 3, NUM_SYMBOLS - 1])
def test_the_results_are_torchs(blank, zero_infinity, reduction):
    options = {"blank": blank, "reduction": reduction, "zero_infinity": zero_infinity}
    log_probs = _log_probs(NUM_FRAMES, NUM_SEQUENCES, NUM_SYMBOLS)
    rows = _targets(blank)
    _assert_as_torch(log_probs, rows, FRAMES, LENGTHS, **options)
    flat = torch.cat([row[:length] for row, length in zip(rows, LENGTHS)])
    _assert_as_torch(log_probs, flat, torch.tensor(FRAMES), torch.tensor(LENGTHS), **options)


@pytest.mark.parametrize("zero_infinity", [False, True])
def test_sequences_without_frames_or_labels(zero_infinity):
    log_probs = _log_probs(NUM_FRAMES, NUM_SEQUENCES, NUM_SYMBOLS)
    options = {"reduction": "none", "zero_infinity": zero_infinity}
    _assert_as_torch(log_probs, _targets(0), (12, 0, 0, 5), (2, 0, 2, 0), **options)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_one_sequence_without_a_batch(reduction):
    log_probs = _log_probs(NUM_FRAMES, NUM_SYMBOLS)
    targets = torch.tensor([1, 2, 2])
    _assert_as_torch(log_probs, targets, (NUM_FRAMES,), (3,), reduction=reduction)
    lengths = torch.tensor(NUM_FRAMES), torch.tensor(3)
    _assert_as_torch(log_probs, targets, *lengths, reduction=reduction)


def test_scores_that_are_no_probabilities():
    log_probs = 5 * torch.randn(NUM_FRAMES, NUM_SEQUENCES, NUM_SYMBOLS)
    _assert_as_torch(log_probs, _targets(0), FRAMES, LENGTHS)


def test_a_nan_is_not_lost():
    log_probs = _log_probs(NUM_FRAMES, NUM_SEQUENCES, NUM_SYMBOLS)
    log_probs[3, 0] = float("nan")
    _assert_as_torch(log_probs, _targets(0), FRAMES, LENGTHS, reduction="none")


def test_a_nan_after_the_end_of_a_sequence_is_ignored():
    log_probs = _log_probs(NUM_FRAMES, NUM_SEQUENCES, NUM_SYMBOLS)
    log_probs[FRAMES[1], 1] = float("nan")
    leaf = log_probs.to(MPS)
    loss = F.ctc_loss(leaf, _targets(0), FRAMES, LENGTHS, reduction="none")
    assert loss[1].isfinite()


def test_a_loss_without_a_gradient():
    log_probs = _log_probs(NUM_FRAMES, NUM_SEQUENCES, NUM_SYMBOLS).to(MPS)
    loss = F.ctc_loss(log_probs, _targets(0), FRAMES, LENGTHS, zero_infinity=True)
    assert loss.isfinite() and not loss.requires_grad


def test_a_second_gradient_is_refused():
    leaf = _log_probs(NUM_FRAMES, NUM_SEQUENCES, NUM_SYMBOLS).to(MPS).requires_grad_(True)
    loss = F.ctc_loss(leaf, _targets(0), FRAMES, LENGTHS, zero_infinity=True)
    with pytest.raises(RuntimeError, match="cannot differentiate ctc_loss twice"):
        torch.autograd.grad(loss, leaf, create_graph=True)


@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_a_program_may_have_the_default_device_mps(device):
    log_probs = _log_probs(NUM_FRAMES, NUM_SEQUENCES, NUM_SYMBOLS).to(device)
    batch = (log_probs, _targets(0).to(device), FRAMES, LENGTHS)
    expected = F.ctc_loss(*batch, reduction="none")
    with torch.device("mps"):
        assert torch.equal(F.ctc_loss(*batch, reduction="none"), expected)


def test_no_path_is_pruned():
    log_probs = _log_probs(200, 3, 40)
    targets = torch.randint(1, 40, (3, 40))
    _assert_as_torch(log_probs, targets, (200, 180, 160), (40, 35, 30), reduction="none")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_are_computed_in_float32(dtype):
    log_probs = _log_probs(NUM_FRAMES, NUM_SEQUENCES, NUM_SYMBOLS).to(dtype)
    leaf = log_probs.to(MPS).requires_grad_(True)
    loss = F.ctc_loss(leaf, _targets(0).to(MPS), FRAMES, LENGTHS, zero_infinity=True)
    loss.backward()
    exact = F.ctc_loss(log_probs.double(), _targets(0), FRAMES, LENGTHS, zero_infinity=True)
    torch.testing.assert_close(loss.cpu(), exact.float(), **LOSS)
    assert leaf.grad.dtype == dtype


SHAPE = (NUM_FRAMES, NUM_SEQUENCES, NUM_SYMBOLS)


def _call(frames=FRAMES, lengths=LENGTHS, targets=None, shape=SHAPE, **options):
    log_probs = _log_probs(*shape).to(MPS)
    targets = _targets(0) if targets is None else targets
    return F.ctc_loss(log_probs, targets, frames, lengths, **options)


@pytest.mark.parametrize(
    "call, reason",
    [
        (lambda: _call(blank=6), "blank must be within [0, 5]. Given: 6"),
        (lambda: _call(blank=-1), "blank must be within [0, 5]. Given: -1"),
        (lambda: _call(shape=(12, 4, 6, 1)), "log_probs must be (T, N, C) or (T, C)"),
        (lambda: _call(shape=(6,)), "log_probs must be (T, N, C) or (T, C)"),
        (lambda: _call(shape=(12, 0, 6)), "not empty. Given: (12, 0, 6)"),
        (lambda: _call(frames=(13, 7, 1, 9)), "input_lengths must be within [0, 12]"),
        (lambda: _call(frames=(12, 7)), "input_lengths must have one for each of 4"),
        (lambda: _call(lengths=(6, 0, 0, 0)), "target_lengths must be within [0, 5]"),
        (lambda: _call(lengths=(-1, 0, 0, 0)), "target_lengths must be within [0, 5]"),
        (lambda: _call(lengths=torch.ones(4)), "target_lengths must be integers"),
        (lambda: _call(targets=torch.ones(4)), "targets must be integers"),
        (lambda: _call(targets=torch.ones(4, dtype=torch.int32)), "targets has 4 labels, and"),
        (lambda: _call(targets=_targets(0)[:-1]), "targets must have a row for each of"),
        (
            lambda: _call(targets=torch.cat([_targets(0)] * 2)),
            "targets must have a row for each of",
        ),
        (lambda: _call(targets=_targets(0) + 3), "labels must be within [0, 5] and not the blank"),
        (lambda: _call(targets=_targets(0) - 1), "labels must be within [0, 5] and not the blank"),
        (lambda: _call(targets=-_targets(0)), "labels must be within [0, 5] and not the blank"),
        (lambda: _call(reduction="max"), "max is not a valid value for reduction"),
    ],
)
def test_wrong_arguments_are_refused(call, reason):
    with pytest.raises((RuntimeError, ValueError)) as refused:
        call()
    assert reason in str(refused.value)


@pytest.mark.parametrize("label", [-1, NUM_SYMBOLS, 2**30])
def test_wrong_labels_on_the_cpu_are_refused(label):
    """torch's own function reads foreign memory, or crashes."""
    targets, log_probs = _targets(0), _log_probs(NUM_FRAMES, NUM_SEQUENCES, NUM_SYMBOLS)
    targets[0, LENGTHS[0] - 1] = label
    with pytest.raises(RuntimeError, match=rf"within \[0, 5\]. Given: \[{label}\]"):
        F.ctc_loss(log_probs, targets, FRAMES, LENGTHS)
    with pytest.raises(RuntimeError, match="Given"):
        F.ctc_loss(log_probs[:, 0], targets[0, : LENGTHS[0]], FRAMES[:1], LENGTHS[:1])


def test_an_error_on_the_cpu_names_a_few_wrong_labels():
    targets = torch.full((NUM_SEQUENCES, 5), NUM_SYMBOLS)
    with pytest.raises(RuntimeError) as refused:
        F.ctc_loss(_log_probs(*SHAPE), targets, FRAMES, (5,) * NUM_SEQUENCES)
    assert str(refused.value).endswith(f"Given: {[NUM_SYMBOLS] * 9}")


@pytest.mark.parametrize("how", [{"dtype": torch.float32}, {"device": MPS}])
def test_wrong_labels_that_torch_converts_are_refused(how):
    targets = torch.full((NUM_SEQUENCES, 5), NUM_SYMBOLS, **how)
    with pytest.raises(RuntimeError, match=r"labels must be within \[0, 5\]"):
        F.ctc_loss(_log_probs(*SHAPE), targets, FRAMES, LENGTHS)


def test_torch_raises_its_own_errors_on_the_cpu():
    with pytest.raises(IndexError, match="Dimension out of range"):
        F.ctc_loss(torch.tensor(0.0), _targets(0), FRAMES, LENGTHS)
    with pytest.raises(RuntimeError, match="target_lengths"):
        F.ctc_loss(_log_probs(*SHAPE), _targets(0), FRAMES, LENGTHS[:2])


def test_padding_on_the_cpu_may_be_any_number():
    targets, log_probs = _targets(0), _log_probs(NUM_FRAMES, NUM_SEQUENCES, NUM_SYMBOLS)
    expected = F.ctc_loss(log_probs, targets, FRAMES, LENGTHS, zero_infinity=True)
    for row, length in zip(targets, LENGTHS):
        row[length:] = 10**9
    assert F.ctc_loss(log_probs, targets, FRAMES, LENGTHS, zero_infinity=True) == expected


def test_uninstall_restores_torchs_function():
    ours = F.ctc_loss
    k2_mac.install_ctc_loss(force=True)  # A second call changes nothing.
    assert F.ctc_loss is ours
    k2_mac.uninstall_ctc_loss()
    assert F.ctc_loss.__module__ == "torch.nn.functional"


def test_a_kernel_of_torch_is_left_alone():
    """From version 2.14 on, torch has its own kernel of ctc_loss for mps, which k2 then uses."""
    ours = F.ctc_loss
    k2_mac.uninstall_ctc_loss()
    torchs = F.ctc_loss
    k2_mac.install_ctc_loss()
    assert F.ctc_loss is k2_mac.gpu.ctc_loss is (torchs if NATIVE else ours)
