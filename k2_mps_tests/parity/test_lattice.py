"""intersect_dense gives bit for bit identical lattices in Metal and on the CPU.

The tests compare states, arcs, the order of both, arc maps, properties and gradients.  All must be
equal, because Metal and the CPU add in the same order.
"""

import sys

import _k2
import k2
import pytest
import torch
from k2.mps.lattice import intersect_dense

from k2_mps_tests.parity.batches import assert_batches
from k2_mps_tests.parity.helpers import MPS, assert_equal, assert_equal_on_both, assert_same
from k2_mps_tests.parity.problems import KINDS, pick, random_graphs, random_scores

pytestmark = pytest.mark.usefixtures("metal")


def _case():
    """Returns random input: graphs, log-probs, segments, a_to_b_map and the beam."""
    num_seqs, num_frames, num_symbols = pick(1, 2, 5), pick(1, 2, 7, 33, 60), pick(2, 4, 9, 40)
    log_probs, segments = random_scores(num_seqs, num_frames, num_symbols, pick(0, 0.5, 2, 20))
    special = pick(None, None, None, float("-inf"), -1.0e10)
    if special is not None:
        log_probs[torch.rand_like(log_probs) < 0.1] = special
    a_to_b, num_fsas = None, num_seqs
    if pick(True, False, False):
        num_fsas = pick(1, 3, 6)
        a_to_b = torch.randint(0, num_seqs, (num_fsas,)).sort().values.int()
    graphs = random_graphs(pick(*KINDS), num_symbols, num_fsas)
    return graphs, log_probs, segments, a_to_b, pick(0.5, 2.0, 8.0, 30.0)


class Result:
    """The results of a case on a device; `lattice` is None if k2 raises an error."""

    def __init__(self, device, graphs, log_probs, segments, a_to_b, beam, **limits):
        self.leaf = log_probs.clone().to(device).requires_grad_(True)
        self.graphs = graphs.to(device).clone().requires_grad_(True)
        self.dense = k2.DenseFsaVec(self.leaf, segments)
        a_to_b = None if a_to_b is None else a_to_b.to(device, copy=True)
        limits = {"max_states": 15000000, "max_arcs": 1 << 30, **limits}
        self.lattice = None
        try:
            self.lattice = k2.intersect_dense(
                self.graphs, self.dense, beam, a_to_b_map=a_to_b, **limits
            )
        except (RuntimeError, ValueError):
            return
        _, *self.maps, self.made = intersect_dense(self.graphs, self.dense, a_to_b, beam, **limits)
        if a_to_b is not None:
            a_to_b.zero_()  # The backward pass does not read the caller's tensor.
        generator = torch.Generator().manual_seed(5)
        weights = torch.randn(self.lattice.num_arcs, generator=generator)
        (self.lattice.scores * weights.to(device)).sum().backward()


def _assert_same_results(cpu, mps):
    assert (cpu.lattice is None) == (mps.lattice is None)
    if cpu.lattice is None:
        return
    assert mps.made is not None
    assert_equal(mps.lattice, cpu.lattice)
    assert_equal(mps.maps, cpu.maps)
    assert _k2.get_fsa_vec_basic_properties(mps.lattice.arcs) == cpu.lattice.properties
    assert_same(mps.dense.scores, cpu.dense.scores)
    assert_same(mps.leaf.grad, cpu.leaf.grad)
    assert_same(mps.graphs.scores.grad, cpu.graphs.scores.grad)


def _case_with_arcs():
    """Draws cases until the CPU's lattice has arcs; returns the case and this lattice."""
    while True:
        case = _case()
        lattice = Result("cpu", *case).lattice
        if lattice is not None and lattice.num_arcs > 0:
            return case, lattice


@pytest.mark.parametrize("seed", range(60))
def test_any_lattice(seed):
    torch.manual_seed(seed)
    case = _case()
    cpu, mps = Result("cpu", *case), Result(MPS, *case)
    assert cpu.lattice is not None
    _assert_same_results(cpu, mps)


@pytest.mark.parametrize("seed", range(40))
def test_any_limit(seed):
    """Metal narrows the beam in the same steps as the CPU, and raises errors in the same cases."""
    torch.manual_seed(1000 + seed)
    case, whole = _case_with_arcs()
    num_states = whole.arcs.shape().tot_size(1)
    share = pick(0.05, 0.3, 0.7, 0.99, 1.0)
    limits = pick(
        {"max_states": max(1, int(share * num_states))},
        {"max_arcs": max(1, int(share * whole.num_arcs))},
        {
            "max_states": max(1, int(share * num_states)),
            "max_arcs": max(1, int(share * 2 * whole.num_arcs)),
        },
    )
    cpu, mps = [Result(device, *case, **limits) for device in ("cpu", MPS)]
    _assert_same_results(cpu, mps)
    if cpu.lattice is not None:
        best, expected = [x.get_tot_scores(True, False) for x in (cpu.lattice, whole)]
        assert torch.equal(best, expected)


# Bits of FsaBasicProperties, see k2/csrc/fsa.h.
MAYBE_ACCESSIBLE, MAYBE_COACCESSIBLE = 0x80, 0x100


@pytest.mark.parametrize("beam", [1e-2, 1e-5, 1e-8])
@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("graph", ["topology", "linear"])
def test_a_beam_that_rounding_exceeds(graph, beam, offset):
    log_probs = torch.randn(2, 50, 6).log_softmax(-1) - offset
    segments = torch.tensor([[1, 0, 50], [0, 5, 31]], dtype=torch.int32)
    single = k2.ctc_topo(5) if graph == "topology" else k2.ctc_graph([[1, 2, 3, 3]])[0]
    graphs = k2.create_fsa_vec([single] * 2)
    cpu, mps = [Result(device, graphs, log_probs, segments, None, beam) for device in ("cpu", MPS)]
    if graph == "linear" and offset > 0:
        # Because of rounding, k2 keeps some states that no arc enters, and some that no arc leaves.
        assert not cpu.lattice.properties & (MAYBE_ACCESSIBLE | MAYBE_COACCESSIBLE)
    _assert_same_results(cpu, mps)
    assert torch.isfinite(mps.lattice.get_tot_scores(True, True)).all()


def test_a_limit_that_the_best_paths_exceed():
    log_probs = torch.randn(2, 50, 6).log_softmax(-1)
    segments = torch.tensor([[0, 0, 50], [1, 0, 31]], dtype=torch.int32)
    graphs = k2.create_fsa_vec([k2.ctc_topo(5)] * 2)
    for device in ("cpu", MPS):
        dense = k2.DenseFsaVec(log_probs.to(device), segments)
        # The best paths have 51 and 32 states, and each state has 7 leaving arcs.
        with pytest.raises(
            RuntimeError, match=f"max_arcs=300: the best paths alone have {7 * (51 + 32)} arcs"
        ):
            k2.intersect_dense(graphs.to(device), dense, 8.0, max_arcs=300)


@pytest.mark.parametrize("seed", range(20))
def test_batches(seed):
    torch.manual_seed(2000 + seed)
    case, cpu = _case_with_arcs()
    lattice = Result(MPS, *case).lattice
    assert_batches(lattice)
    # If no arc enters a state, the CPU and Metal can put the state into different batches.  These
    # cases have no such state.  If no graph meets the longest sequence, Metal's last batches are
    # empty, and the CPU has no such batches.
    _, _, segments, a_to_b, _ = case
    lengths = segments[:, 2]
    if a_to_b is not None and lengths[a_to_b.long()].max() < lengths.max():
        lattice = k2.intersect_dense(
            case[0].to(MPS), k2.DenseFsaVec(case[1].to(MPS), segments[a_to_b.long()]), case[4]
        )
    for name in ("incoming_arcs", "state_batches", "entering_arc_batches", "leaving_arc_batches"):
        found, expected = [getattr(x, f"_get_{name}")() for x in (lattice, cpu)]
        assert_equal(found, expected, name)
    for log_semiring in (True, False):
        for name in ("get_forward_scores", "get_backward_scores", "get_tot_scores", "get_arc_post"):
            found, expected = [
                getattr(x, name)(True, log_semiring).detach() for x in (lattice, cpu)
            ]
            tolerance = {}
            if log_semiring:  # exp() and log() differ between GPU and CPU.
                tolerance = {"atol": 1e-3, "rtol": 1e-5}
            elif name == "get_arc_post":
                # A result is a difference of scores, some of which are 2e10.  The relative errors
                # of scores are about 2^-48 in Metal, and 2^-53 on the CPU.
                totals = cpu.get_tot_scores(True, False).detach()
                largest = totals[totals.isfinite()].abs().max().item()
                tolerance = {"atol": largest * 2.0**-46, "rtol": 0}
            assert_same(found, expected.float(), **tolerance)
    assert_same(
        k2.shortest_path(lattice, True).arcs.values(), k2.shortest_path(cpu, True).arcs.values()
    )


def test_an_empty_lattice():
    graphs = k2.create_fsa_vec([k2.Fsa.from_str("0 1 5 0\n1 2 -1 0\n2")] * 2)
    log_probs = torch.full((2, 4, 7), float("-inf"))
    segments = torch.tensor([[0, 0, 4], [1, 0, 0]], dtype=torch.int32)
    case = graphs, log_probs, segments, None, 10.0
    cpu, mps = Result("cpu", *case), Result(MPS, *case)
    _assert_same_results(cpu, mps)
    assert mps.lattice.num_arcs == 0
    for log_semiring in (True, False):
        assert_same(
            mps.lattice.get_tot_scores(False, log_semiring).detach(),
            cpu.lattice.get_tot_scores(False, log_semiring).detach(),
        )


def test_a_graph_without_states_causes_no_warning(capfd):
    """If a graph has no path, k2.connect() leaves no state of the graph, and the lattice is empty.

    The CPU prints nothing about such a graph.
    """
    strings = ("0 1 1 0\n1 2 2 0\n2 3 -1 0\n3", "0 1 1 0\n2 3 -1 0\n3")
    graphs = k2.connect(k2.create_fsa_vec([k2.Fsa.from_str(strings[i]) for i in (0, 1, 0)]))
    assert graphs.arcs.shape().row_splits(1).diff()[1] == 0
    segments = torch.tensor([[0, 0, 2], [1, 0, 3], [2, 0, 2]], dtype=torch.int32)
    case = graphs, torch.randn(3, 4, 3), segments, None, 10.0
    _assert_same_results(Result("cpu", *case), Result(MPS, *case))
    assert capfd.readouterr() == ("", "")


def test_scores_that_overflow_in_the_forward_pass_only():
    """k2 keeps the first arc, but not the final state, and refuses the lattice on each device."""
    graphs = k2.create_fsa_vec([k2.Fsa.from_str("0 1 1 0\n1 2 1 0\n2 3 -1 2e38\n3")])
    # The sum of the first two scores is below the range of floats, the sum of the last two is not.
    log_probs = torch.full((1, 2, 2), -2e38)
    segments = torch.tensor([[0, 0, 2]], dtype=torch.int32)
    for device in ("cpu", MPS):
        dense = k2.DenseFsaVec(log_probs.to(device), segments)
        with pytest.raises(ValueError, match="Fsa is not valid.*0 1 1 -2e[+]38"):
            k2.intersect_dense(graphs.to(device), dense, 10.0)


# One dispatch takes up to 240 segments.
@pytest.mark.parametrize("num_segments", [1, 2, 7, 240, 241, 500])
def test_dense_fsa_vec(num_segments):
    log_probs = torch.randn(5, 9, 33)
    starts = torch.randint(0, 9, (num_segments,))
    segments = torch.stack(
        [
            torch.randint(0, 5, (num_segments,)),
            starts,
            torch.randint(0, 3, (num_segments,)).clamp(max=9 - starts),
        ],
        dim=1,
    ).int()

    def results(device):
        leaf = log_probs.detach().to(device).requires_grad_(True)
        dense = k2.DenseFsaVec(leaf, segments)
        weights = torch.linspace(-1, 1, dense.scores.numel()).view_as(dense.scores)
        dense.scores.backward(weights.to(device))
        row_splits = dense.dense_fsa_vec.shape().row_splits(1)
        return dense.scores, row_splits, dense.duration.tolist(), leaf.grad

    # Both devices add the gradients of overlapping segments in the order of the segments.
    assert_equal_on_both(results)


@pytest.mark.parametrize(
    "log_probs",
    [
        torch.randn(6, 4, 3).transpose(0, 1),
        torch.randn(4, 3, 6).transpose(1, 2),
        torch.randn(4, 12, 6)[:, ::2, ::2],
        torch.randn(1, 1, 3).expand(4, 6, 3),
    ],
    ids=["frames first", "symbols first", "strided", "expanded"],
)
def test_dense_fsa_vec_of_any_strides(log_probs):
    segments = torch.tensor([[3, 0, 6], [1, 2, 4], [3, 5, 0]], dtype=torch.int32)
    found = k2.DenseFsaVec(log_probs.to(MPS), segments)
    expected = k2.DenseFsaVec(log_probs, segments)
    assert_same(found.scores, expected.scores)


@pytest.mark.skipif(sys.platform == "darwin", reason="counting needs the emulated device")
def test_the_host_waits_once():
    """The host waits only to read the sizes of the lattice."""
    from mps_emulator import counters

    leaf = torch.randn(3, 40, 12, device=MPS, requires_grad=True)
    segments = torch.tensor([[1, 0, 40], [0, 3, 33], [2, 0, 25]], dtype=torch.int32)
    targets = [[1, 2, 2, 3], [4, 4, 4], [5, 6, 7, 8, 9, 10]]

    def step():
        graphs = k2.ctc_graph(targets, device=MPS)
        torch.mps.synchronize()
        with counters() as counted:
            dense = k2.DenseFsaVec((2 * leaf).log_softmax(-1), segments)
            lattice = k2.intersect_dense(graphs, dense, 10.0)
            lattice._get_state_batches()
            lattice.scores.backward(lattice.scores.detach())
        return counted

    step()  # The first call compiles kernels.
    counted = step()
    assert counted.waits_with_work == 1
    assert counted.host_to_device_bytes == counted.device_to_host_bytes == 0
