"""Compares ctc_loss on mps with ctc_loss on the CPU.  Only the CPU makes a lattice.

The kernels keep exactly the arcs that the CPU keeps.  The kernels' sums have a precision of about
48 bits.  So the kernels' loss is the CPU's float64 loss rounded to float32.  An element of a
gradient is a sum of posteriors, and each posterior has an error of 3 roundings.  The tolerance of a
gradient is relative to the gradient's largest element.
"""

import importlib
import math

import k2
import pytest
import torch

from k2_mps_tests.parity import calls
from k2_mps_tests.parity.helpers import MPS, assert_same
from k2_mps_tests.parity.problems import KINDS, pick, random_graphs, random_scores

GRADIENT_ERROR = 1e-6  # relative to the largest element of the gradient
BUDGETS = calls.table("budgets.toml")

pytestmark = pytest.mark.usefixtures("metal")


class Case:
    """Random input of ctc_loss; `kind` is the kind of the decoding graphs, one of KINDS."""

    def __init__(self, seed, kind, num_frames=40):
        torch.manual_seed(seed)
        num_fsas = int(torch.randint(1, 6, ()))
        self.num_symbols = int(torch.randint(3, 20, ()))
        scale = pick(0.1, 1, 3, 20)
        self.log_probs, self.segments = random_scores(num_fsas, num_frames, self.num_symbols, scale)
        self.graph = random_graphs(kind, self.num_symbols, num_fsas)
        self.beam = pick(1.0, 5.0, 8.0, 10.0, 30.0)
        self.weights = torch.randn(num_fsas)
        self.arc_scores = torch.randn(self.graph.num_arcs)

    def losses(self, device, with_graph=False, **arguments):
        """Returns (losses, gradients), with one loss for each sequence.

        gradients: [gradient of the log-probs]; `with_graph` adds the gradient of the graph's
          scores.
        """
        graph = self.graph.to(device)
        leaves = [self.log_probs.clone().to(device).requires_grad_(True)]
        if with_graph:
            leaves.append(self.arc_scores.clone().to(device).requires_grad_(True))
            graph.scores = leaves[1]
        dense = k2.DenseFsaVec(leaves[0], self.segments)
        loss = k2.ctc_loss(graph, dense, output_beam=self.beam, reduction="none", **arguments)
        # The loss of an impossible sequence is infinite and has no gradient.
        (loss * self.weights.to(device)).sum().backward()
        return loss.detach(), [leaf.grad for leaf in leaves]


def assert_losses_agree(mps, cpu, atol=1e-12, rtol=1.2e-7):
    # rtol is one unit in the last place of float32.  atol is for losses near 0.  Such a loss is a
    # difference of larger scores, and has the absolute error of these scores in float64.
    torch.testing.assert_close(mps.cpu(), cpu, atol=atol, rtol=rtol)


def assert_gradients_agree(mps, cpu, error=GRADIENT_ERROR):
    for ours, theirs in zip(mps, cpu):
        assert_same(ours, theirs, rtol=0, atol=error * max(float(theirs.abs().max()), 1e-30))


# The kernel's sums in float32 differ from sums in float64 by up to 4e-6.  The CPU's sums in float32
# differ from sums in float64 by up to 4e-5.
FLOAT_ERROR = 4e-6


def assert_as_cpu(case, double=True, atol=FLOAT_ERROR, error=1e-5, **arguments):
    """Asserts that the kernels' results agree with the CPU's results in float64.

    Args:
      double: whether the kernels, too, compute in double precision.
      atol: the absolute tolerance of a loss, used only if `double` is False.
      error: the tolerance of a gradient, relative to the gradient's largest element.  It is used
        only if `double` is False.
    Returns:
      The losses on the CPU.
    """
    cpu, cpu_grads = case.losses("cpu", **arguments)
    mps, mps_grads = _on_metal(case, use_double_scores=double, **arguments)
    assert_losses_agree(mps, cpu, **({} if double else {"atol": atol, "rtol": 5e-7}))
    assert_gradients_agree(mps_grads, cpu_grads, GRADIENT_ERROR if double else error)
    return cpu


def _dispatches(placement, operation):
    """Returns how many dispatches budgets.toml gives for both passes of an operation."""
    budget = BUDGETS[operation]
    passes = budget.get(placement, budget["host"])
    return sum(passes[name]["dispatches"] for name in ("forward", "backward"))


def _on_metal(case, **arguments):
    """Returns losses and gradients on mps, and asserts that the kernels of CTC compute them."""
    torch.mps.synchronize()
    with k2.mps.counters() as counted:
        ans = case.losses(MPS, **arguments)
    loss = "ctc_loss, graph.requires_grad=True" if arguments.get("with_graph") else "ctc_loss"
    expected = _dispatches("metal", "DenseFsaVec") + _dispatches("metal", loss)
    assert counted.dispatches == expected
    return ans


def _case_of(targets, num_frames, lengths):
    case = Case(0, "ctc", num_frames=num_frames)
    case.graph = k2.ctc_graph(targets)
    torch.manual_seed(0)
    count = len(targets)
    case.log_probs = torch.randn(count, num_frames, 30).log_softmax(-1)
    case.segments = torch.tensor(
        [[i, 0, length] for i, length in enumerate(lengths)], dtype=torch.int32
    )
    case.weights = torch.ones(count)
    return case


def _targets(*lengths):
    torch.manual_seed(0)
    return [torch.randint(1, 30, (n,)).tolist() for n in lengths]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("with_graph", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_double_scores_are_those_of_the_cpu(kind, with_graph, seed):
    assert_as_cpu(Case(seed, kind), with_graph=with_graph)


@pytest.mark.parametrize("double", [True, False])
def test_a_graph_without_states(double):
    """A sequence whose graph is empty has an infinite loss and no gradient.

    All other sequences have the CPU's results.
    """
    case = _case_of(_targets(7, 5, 3), 20, [20, 20, 18])
    first, _, last = (k2.Fsa(case.graph[i].arcs) for i in range(3))
    case.graph = k2.create_fsa_vec([first, k2.Fsa.from_str(""), last])
    assert assert_as_cpu(case, double, atol=1e-12)[1] == math.inf


@pytest.mark.parametrize("seed", range(20))
def test_float_scores(seed):
    # The reference is the CPU's lattice in double precision.
    assert_as_cpu(Case(seed, "ctc"), double=False)


@pytest.mark.parametrize("repeats", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_delay_penalty(repeats, seed):
    case = Case(seed, "ctc")
    if repeats:
        case.graph._is_repeat_token_ = torch.rand(case.graph.num_arcs) < 0.3
    assert_as_cpu(case, delay_penalty=0.1)


def test_graphs_with_more_states_than_threadgroup_memory_has():
    assert_as_cpu(_case_of(_targets(700, 3), 720, [720, 50]))


@pytest.mark.parametrize("double", [False, True])
def test_a_large_graph_among_small_ones(double):
    # Threadgroup memory can hold the sums of an average graph, but not those of the largest graph.
    lengths = [900, 440, 2, 0, 3, 1, 4, 2, 2, 0, 1, 1, 5, 2]
    case = _case_of(_targets(*lengths), 950, [950, 470] + [60] * 12)
    assert_as_cpu(case, double, error=1e-4)


@pytest.mark.parametrize("double", [False, True])
def test_a_sequence_has_the_same_bits_in_any_batch(double):
    # The number of frames between checkpoints depends on the batch, and on whether the graphs'
    # scores require a gradient.  The results must not depend on this number.
    targets, frames = _targets(200, 90, 20, 3, 0), [300, 280, 257, 40, 9]
    batch = _case_of(targets, 300, frames)
    batch.beam = 10.0
    loss, (grad,) = batch.losses(MPS, use_double_scores=double)
    batch.arc_scores = torch.zeros(batch.graph.num_arcs)
    with_graph, (other, _) = batch.losses(MPS, with_graph=True, use_double_scores=double)
    assert torch.equal(loss, with_graph) and torch.equal(grad, other)
    for i, (target, length) in enumerate(zip(targets, frames)):
        alone = _case_of([target], 300, [length])
        alone.log_probs, alone.beam = batch.log_probs[i : i + 1], 10.0
        its_loss, (its_grad,) = alone.losses(MPS, use_double_scores=double)
        assert torch.equal(loss[i], its_loss[0])
        assert torch.equal(grad[i], its_grad[0])


def _peak(function):
    """Calls a function; returns (the peak of memory during the call, the function's result).

    The peak is in bytes, and does not count the memory that was in use before the call.
    """
    torch.mps.synchronize()
    before = torch.accelerator.memory_allocated()
    torch.accelerator.reset_peak_memory_stats()
    ans = function()
    torch.mps.synchronize()
    return torch.accelerator.max_memory_allocated() - before, ans


@pytest.mark.parametrize("double", [False, True])
def test_memory_of_each_pass_is_bounded(double):
    case = _case_of(_targets(*[60] * 8), 500, [500] * 8)
    graph = case.graph.to(MPS)
    scores = case.log_probs.to(MPS).requires_grad_(True)
    dense = k2.DenseFsaVec(scores, case.segments)

    def loss():
        return k2.ctc_loss(graph, dense, use_double_scores=double)

    loss()
    forward, made = _peak(loss)
    backward, _ = _peak(made.backward)
    states_and_frames = graph.arcs.shape().tot_size(1) * 501
    gradients = 2 * scores.numel() * 4
    # The limits are a tenth of the memory that the CPU takes for 32 such sequences.  For each state
    # of every 16th frame, the kernels keep the sums of both directions, in 16 or 24 bytes.  The
    # kernels also keep the scores of best paths, the totals, and one bit for each arc, which is
    # about three bits for each state.
    assert forward < (2.2 if double else 1.7) * states_and_frames
    assert backward - gradients < 0.5 * states_and_frames


def test_nothing_waits_while_the_gpu_is_busy():
    case = Case(6, "ctc")
    case.losses(MPS)
    graph = case.graph.to(MPS)
    torch.mps.synchronize()
    log_probs = case.log_probs.to(MPS).requires_grad_(True)
    busy = (log_probs * 1).log_softmax(-1)
    dense = k2.DenseFsaVec(busy, case.segments)
    with k2.mps.counters() as counted:
        k2.ctc_loss(graph, dense, output_beam=case.beam).backward()
    assert counted.waits == 0 and counted.gates == 0, counted
    assert log_probs.grad is not None


def test_the_best_path_stays_with_any_beam():
    case = Case(10, "ctc", num_frames=200)
    case.graph = k2.ctc_graph([[1, 2, 1]] * len(case.weights))
    case.log_probs = (case.log_probs * 1e4)[:, :, :3].contiguous()
    case.segments[:, 1], case.segments[:, 2] = 0, 200
    case.beam = 1e-8
    loss, (grad, *_) = _on_metal(case)
    dense = k2.DenseFsaVec(case.log_probs, case.segments)
    lattice = k2.intersect_dense(case.graph, dense, output_beam=100.0)
    best = -lattice.get_tot_scores(use_double_scores=True, log_semiring=False)
    # The kernels keep one path, or a few paths whose scores of about -1e5 differ only by rounding.
    torch.testing.assert_close(loss.cpu().double(), best, atol=0, rtol=1e-4)
    assert torch.isfinite(grad).all() and grad.abs().sum() > 0


def test_of_equal_paths_the_first_one_stays():
    """Each state has two equal arcs.  The beam is so small that a score minus it is the score."""
    num_frames = 12
    lines = [f"{i} {i + 1} {1 + i % 3} 0" for i in range(num_frames - 1) for _ in range(2)]
    lines += [f"{num_frames - 1} {num_frames} -1 0", str(num_frames)]
    case = Case(0, "ctc")
    case.graph = k2.create_fsa_vec([k2.Fsa.from_str("\n".join(lines))])
    # Sums of integers are exact.
    case.log_probs = torch.randint(-1010, -990, (1, num_frames - 1, 4)).float()
    case.segments = torch.tensor([[0, 0, num_frames - 1]], dtype=torch.int32)
    case.beam, case.weights = 1e-6, torch.ones(1)
    case.arc_scores = torch.zeros(case.graph.num_arcs)
    _, (_, grad) = case.losses("cpu", with_graph=True)
    assert grad.tolist() == [-1.0, 0.0] * (num_frames - 1) + [-1.0]
    assert_as_cpu(case, with_graph=True)


def _graph_with_label(label):
    graph = k2.ctc_graph([[1, 2]], device=MPS)
    # The GPU edits the label in place, so the host does not know the new label.
    graph.labels[graph.labels == 2] = label
    return graph


class WrongLabel:
    """Scores on mps that have no column for one label of a decoding graph."""

    def __init__(self):
        case = Case(7, "ctc")
        self.label = label = case.num_symbols
        self.message = rf"label {label}, .* not within \[-1, {label - 1}\]: .* {label + 1} columns"
        segments = torch.tensor([[0, 0, 20]], dtype=torch.int32)
        self.log_probs = case.log_probs.to(MPS).requires_grad_(True)
        self.dense = k2.DenseFsaVec(self.log_probs, segments)

    def unknown_to_the_host(self):
        return k2.ctc_loss(_graph_with_label(self.label), self.dense)


def test_a_label_without_scores_is_an_error():
    wrong = WrongLabel()
    with pytest.raises(RuntimeError, match="^The decoding graph has " + wrong.message):
        k2.ctc_loss(k2.ctc_graph([[1, wrong.label]], device=MPS), wrong.dense)


def test_a_label_without_scores_gives_nan_if_the_gpu_made_it():
    wrong = WrongLabel()
    assert math.isnan(wrong.unknown_to_the_host().item())


def test_a_label_without_scores_is_an_error_of_no_other_graph():
    wrong = WrongLabel()
    wrong.unknown_to_the_host().item()
    Case(8, "ctc").losses(MPS)


def test_a_label_without_scores_is_an_error_of_the_next_loss():
    wrong = WrongLabel()
    graph = _graph_with_label(wrong.label)
    k2.ctc_loss(graph, wrong.dense).item()
    # The host has waited for the loss, so the host knows the labels of this graph now.
    with pytest.raises(RuntimeError, match="^The decoding graph has " + wrong.message):
        k2.ctc_loss(graph, wrong.dense)


def test_a_label_without_scores_is_an_error_of_the_backward_pass():
    wrong = WrongLabel()
    loss = wrong.unknown_to_the_host()
    torch.mps.synchronize()
    with pytest.raises(RuntimeError, match="of this k2.ctc_loss .* has " + wrong.message):
        loss.backward()
    assert wrong.log_probs.grad is None
    Case(8, "ctc").losses(MPS)


@pytest.mark.parametrize("device", ["cpu", "mps"])
@pytest.mark.parametrize("beam", [0.0, -1.0, math.nan])
def test_a_beam_that_is_not_positive_is_refused(beam, device):
    log_probs = torch.randn(1, 20, 5).log_softmax(-1).to(device)
    dense = k2.DenseFsaVec(log_probs, torch.tensor([[0, 0, 20]], dtype=torch.int32))
    with pytest.raises(RuntimeError, match="output_beam"):
        k2.ctc_loss(k2.ctc_graph([[1, 2]], device=device), dense, output_beam=beam)


def test_a_small_problem_takes_the_lattice(monkeypatch):
    case = Case(9, "ctc")
    monkeypatch.setenv("K2_MPS_FORCE", "host")
    with k2.mps.counters() as counted:
        case.losses(MPS)
    # The host makes the lattice, and the GPU the scores of DenseFsaVec and their gradient.
    assert counted.dispatches == _dispatches("host", "DenseFsaVec")


def _dispatches_of(function):
    with k2.mps.counters() as counted:
        function()
    return counted.dispatches


def test_a_problem_with_too_many_states_takes_the_lattice(monkeypatch):
    case = Case(9, "ctc")
    graph, log_probs = case.graph.to(MPS), case.log_probs.to(MPS).requires_grad_(True)

    def by_lattice():
        dense = k2.DenseFsaVec(log_probs, case.segments)
        lattice = k2.intersect_dense(graph, dense, output_beam=case.beam)
        scores = lattice.get_tot_scores(use_double_scores=False, log_semiring=True)
        (scores * case.weights.to(MPS)).sum().backward()

    expected = _dispatches_of(by_lattice)
    # The real limit needs a problem whose lattice takes some gigabytes.
    monkeypatch.setattr(importlib.import_module("k2.mps.ctc"), "_MAX_STATES", 10)
    found = _dispatches_of(lambda: case.losses(MPS, use_double_scores=False))
    assert found == expected
    assert "\nctc_loss: not by Metal: the lattice may exceed the max_states " in k2.mps.explain()
