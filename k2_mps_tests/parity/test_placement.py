"""k2 chooses between the host and Metal, and either one gives the CPU's results.

A maximum is bit for bit identical in Metal and on the CPU.  So most comparisons here are exact.
"""

import _k2
import k2
import pytest
import torch

from k2_mps_tests.parity.helpers import MPS, assert_equal, assert_equal_on_both, on_both, wide_fsa

NOT_FINITE = [float("-inf"), float("nan"), float("inf")]


def _dispatches(function):
    """Returns the number of k2's dispatches in a second call of `function`."""
    function()
    with k2.mps.counters() as counted:
        function()
    return counted.dispatches


def _log_probs(num_seqs, num_frames, num_symbols):
    return torch.randn(num_seqs, num_frames, num_symbols).log_softmax(-1)


def _segments(num_frames):
    return torch.tensor([[i, 0, n] for i, n in enumerate(num_frames)], dtype=torch.int32)


def _lattice(graph, log_probs, num_frames, device):
    """Returns the lattice, and the gradient of the log-probs if the loss is the sum of scores."""
    leaf = log_probs.clone().to(device).requires_grad_(True)
    dense = k2.DenseFsaVec(leaf, _segments(num_frames))
    lattice = k2.intersect_dense(graph.to(device), dense, output_beam=12)
    lattice.scores.sum().backward()
    return lattice, leaf.grad


def _assert_lattices_agree(graph, log_probs, num_frames):
    cpu, mps = on_both(lambda d: _lattice(graph, log_probs, num_frames, d))
    assert_equal(mps, cpu)
    return cpu[0]


def _chain(num_states, num_symbols):
    """Returns a graph with arcs from each state to itself and to the next two states."""
    lines = []
    for i in range(num_states - 1):
        for dest in (i, i + 1, i + 2):
            if dest < num_states - 1:
                lines.append(f"{i} {dest} {dest % num_symbols} {-0.01 * (i % 17)}")
        lines.append(f"{i} {num_states - 1} -1 0")
    lines.append(str(num_states - 1))
    return k2.Fsa.from_str("\n".join(lines))


def _dense_graph(num_states, num_symbols):
    """Returns a graph in which each state but the last has an arc to every state."""
    lines = []
    for i in range(num_states - 1):
        lines += [
            f"{i} {j} {(i * 7 + j) % num_symbols} {-0.1 * ((i + j) % 5)}"
            for j in range(num_states - 1)
        ]
        lines.append(f"{i} {num_states - 1} -1 0")
    lines.append(str(num_states - 1))
    return k2.Fsa.from_str("\n".join(lines))


def test_a_value_that_is_no_place_is_refused(monkeypatch):
    monkeypatch.setenv("K2_MPS_FORCE", "gpu")
    with pytest.raises(RuntimeError, match="K2_MPS_FORCE"):
        _lattice(k2.ctc_graph([[1]]), _log_probs(1, 4, 3), [4], MPS)


@pytest.mark.parametrize("num_frames, where", [(3, "host"), (300, "metal")])
def test_intersect_dense_goes_by_size(num_frames, where):
    num_seqs = 8
    graph = k2.ctc_graph([[1, 2, 3, 4, 5] * 3] * num_seqs, device=MPS)
    log_probs = _log_probs(num_seqs, num_frames, 6).to(MPS)
    dense = k2.DenseFsaVec(log_probs, _segments([num_frames] * num_seqs))
    count = _dispatches(lambda: k2.intersect_dense(graph, dense, output_beam=5))
    # Metal takes four dispatches: for the two passes, for the counts of kept states, for the places
    # of kept states, and for the lattice.
    assert count == {"host": 0, "metal": 4}[where]


@pytest.mark.parametrize("num_fsas, where", [(1, "host"), (100, "metal")])
@pytest.mark.parametrize("double", [True, False])
def test_scores_go_by_size(num_fsas, where, double):
    fsas = k2.create_fsa_vec([wide_fsa(40, 10)] * num_fsas).to(MPS)
    fsas.requires_grad_(True)
    grad = torch.ones(num_fsas, device=MPS)

    def scores():
        fsas._invalidate_cache_()
        fsas.get_tot_scores(double, log_semiring=True).backward(grad)

    # Metal takes a dispatch for the scores of both directions, and one for the gradient.
    assert _dispatches(scores) == {"host": 0, "metal": 2}[where]


def _loops(num_arcs, num_fsas=1):
    """Returns an FsaVec of FSAs with two states and `num_arcs` arcs each.

    One arc leads to the second state.  The other arcs are loops of the first state.
    """
    arcs = torch.tensor([[0, 0, i + 1, 0] for i in range(num_arcs - 1)] + [[0, 1, -1, 0]])
    return k2.create_fsa_vec([k2.Fsa(arcs.int())] * num_fsas).to(MPS)


@pytest.mark.parametrize(
    "num_arcs, num_rows, fits",
    [(1, 2**16, True), (2**12, 2**16, True), (1, 2**16 + 1, False), (2**12 + 1, 2**16, False)],
)
def test_ctc_loss_that_may_take_a_second_goes_by_the_lattice(num_arcs, num_rows, fits, placement):
    goes = _k2.mps_prefers_ctc(_loops(num_arcs).arcs, num_rows)
    assert goes == (fits and placement == "metal")


# The number of FSAs in a wave: the FSAs that the GPU computes at once.  A core has threadgroup
# memory for 5 threadgroups of the kernel ctc_sums, and each FSA has two threadgroups.
AT_ONCE = 5 * torch.backends.mps.get_core_count() // 2
WAVES = pytest.mark.parametrize(
    "num_fsas, num_waves", [(1, 1), (AT_ONCE, 1), (AT_ONCE + 1, 2), (8 * AT_ONCE, 8)]
)


@WAVES
def test_ctc_loss_of_several_waves_takes_a_second_earlier(num_fsas, num_waves, metal):
    arcs = _loops(2, num_fsas).arcs
    most = 2**16 // num_waves
    assert _k2.mps_prefers_ctc(arcs, most) and not _k2.mps_prefers_ctc(arcs, most + 1)


@WAVES
def test_the_estimate_counts_waves(num_fsas, num_waves, monkeypatch):
    monkeypatch.delenv("K2_MPS_FORCE", raising=False)
    before = next(p.costs for p in _k2.mps_placements() if p.operation == "ctc_loss")
    graph, num_rows, step = _loops(2, num_fsas), 100, 1000.0
    metal = step * num_rows * num_waves
    try:
        for host in (0.99 * metal, 1.01 * metal):
            _k2.mps_set_costs("ctc_loss", host / (graph.num_arcs * num_rows), step, 0.0)
            assert _k2.mps_prefers_ctc(graph.arcs, num_rows) == (host > metal)
    finally:
        _k2.mps_set_costs("ctc_loss", before.host, before.step, before.call)


# Threadgroup memory has room for 1,024 states.
@pytest.mark.parametrize("num_states", [2, 33, 1023, 1024, 1025, 2500])
def test_states_of_a_graph(num_states, placement):
    num_frames = [5, 4, 2]
    graph = k2.create_fsa_vec([_chain(n, 4) for n in (num_states, 7, max(2, num_states // 2))])
    lattice = _assert_lattices_agree(graph, _log_probs(3, 5, 4), num_frames)
    assert lattice.num_arcs > 0


# The kernel gives each state 1 to 32 lanes, depending on the graph.  In some cases, a state has
# more arcs than its lanes' registers hold.
@pytest.mark.parametrize("num_states", [4, 7, 12, 20, 40, 130, 200])
def test_arcs_of_a_state(num_states, placement):
    graph = k2.create_fsa_vec([_dense_graph(num_states, 5)] * 2)
    _assert_lattices_agree(graph, _log_probs(2, 6, 5), [6, 3])


@pytest.mark.parametrize("value", NOT_FINITE)
def test_intersect_dense_with_scores_that_are_not_finite(value, placement):
    log_probs = _log_probs(2, 7, 4)
    log_probs[0, 2, 1] = log_probs[1, 4] = value
    graph = k2.create_fsa_vec([_chain(6, 4)] * 2)

    def arcs(device):
        return _lattice(graph, log_probs, [7, 7], device)[0].arcs.values()

    assert_equal_on_both(arcs)


def test_a_lattice_of_several_dispatches_is_the_same(metal):
    """If there is more work than 2^28, k2 splits the work into several dispatches.

    Work is the number of arcs of all FSAs, times the number of frames of the longest sequence.
    """
    num_frames, num_symbols = 2500, 4
    graph = k2.create_fsa_vec([_chain(8, num_symbols), _dense_graph(330, num_symbols)])
    assert graph.num_arcs * num_frames > 1 << 28
    log_probs = _log_probs(2, num_frames, num_symbols)
    _assert_lattices_agree(graph, log_probs, [num_frames, 2])

    def intersect(num_frames):
        dense = k2.DenseFsaVec(log_probs.to(MPS), _segments([num_frames, 2]))
        k2.intersect_dense(graph.to(MPS), dense, output_beam=12)

    assert _dispatches(lambda: intersect(num_frames)) == _dispatches(lambda: intersect(100)) + 1
