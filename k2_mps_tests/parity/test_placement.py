"""Operations that the host or Metal can run: the choice, and equal results.

The kernels' maxima equal the CPU's to the bit, so most comparisons here are exact.
"""

import sys

import _k2
import k2
import pytest
import torch

from k2_mps_tests.parity.helpers import (
    MPS,
    assert_equal,
    assert_equal_on_both,
    is_reference_double,
    on_both,
    random_fsa_vec,
)

EPS = torch.finfo(torch.float32).eps
NOT_FINITE = [float("-inf"), float("nan"), float("inf")]
SEMIRINGS = pytest.mark.parametrize("log_semiring", [True, False], ids=["log", "tropical"])


def _dispatches(function):
    """Returns the number of k2's dispatches in a second call of `function`."""
    if sys.platform == "darwin":
        pytest.skip("counting needs the emulated device")
    import mps_emulator

    function()
    torch.mps.synchronize()
    with mps_emulator.counters() as counted:
        function()
        torch.mps.synchronize()  # The counter counts a dispatch when the device runs it.
    return counted.dispatches


def _log_probs(num_seqs, num_frames, num_symbols):
    return torch.randn(num_seqs, num_frames, num_symbols).log_softmax(-1)


def _segments(num_frames):
    return torch.tensor([[i, 0, n] for i, n in enumerate(num_frames)], dtype=torch.int32)


def _lattice(graph, log_probs, num_frames, device, a_to_b_map=None):
    """Returns the intersection, and the gradient of the sum of its scores."""
    leaf = log_probs.clone().to(device).requires_grad_(True)
    dense = k2.DenseFsaVec(leaf, _segments(num_frames))
    if a_to_b_map is not None:
        a_to_b_map = torch.tensor(a_to_b_map, dtype=torch.int32, device=device)
    lattice = k2.intersect_dense(graph.to(device), dense, output_beam=12, a_to_b_map=a_to_b_map)
    lattice.scores.sum().backward()
    return lattice, leaf.grad


def _assert_lattices_agree(graph, log_probs, num_frames, a_to_b_map=None):
    cpu, mps = on_both(lambda d: _lattice(graph, log_probs, num_frames, d, a_to_b_map))
    assert_equal(mps, cpu)
    return cpu[0]


def _chain(num_states, num_symbols):
    """A cyclic graph with self loops and jumps of one and two states."""
    lines = []
    for i in range(num_states - 1):
        for dest in (i, i + 1, i + 2):
            if dest < num_states - 1:
                lines.append(f"{i} {dest} {dest % num_symbols} {-0.01 * (i % 17)}")
        lines.append(f"{i} {num_states - 1} -1 0")
    lines.append(str(num_states - 1))
    return k2.Fsa.from_str("\n".join(lines))


def _dense_graph(num_states, num_symbols):
    """A graph in which each state has arcs to all others."""
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
    # The passes; the counts and places of kept states; the lattice.
    assert count == {"host": 0, "metal": 4}[where]


@pytest.mark.parametrize("num_fsas, where", [(1, "host"), (100, "metal")])
@pytest.mark.parametrize("double", [True, False])
def test_scores_go_by_size(num_fsas, where, double):
    fsas = k2.create_fsa_vec([_wide(40, 10)] * num_fsas).to(MPS)
    fsas.requires_grad_(True)
    grad = torch.ones(num_fsas, device=MPS)

    def scores():
        fsas._invalidate_cache_()
        fsas.get_tot_scores(double, log_semiring=True).backward(grad)

    # The scores of both directions, and their gradient.
    assert _dispatches(scores) == {"host": 0, "metal": 2}[where]


@pytest.mark.parametrize(
    "grad",
    [
        torch.tensor([1.0, -2.0, 3.0, 0.5]),
        torch.tensor(2.0).expand(4),
        torch.tensor([[1.0, 9.0], [-2.0, 9.0], [3.0, 9.0], [0.5, 9.0]])[:, 0],
    ],
    ids=["contiguous", "expanded", "strided"],
)
def test_total_scores_and_their_gradient(grad, placement):
    empty = k2.Fsa.from_str("")
    fsas = k2.create_fsa_vec([_wide(5, 2), empty, _wide(33, 3), _wide(1, 1)])
    forward = torch.randn(int(fsas.arcs.shape().tot_size(1)))
    post = -10 * torch.rand(fsas.num_arcs)
    post[::5] = float("-inf")

    def results(device):
        arcs = fsas.to(device).arcs
        tot = _k2.get_tot_scores_float(arcs, forward.to(device))
        assert tot[1] == float("-inf")
        # .to() keeps the strides.
        return tot, _k2.get_tot_scores_float_log_backward(arcs, post.to(device), grad.to(device))

    (cpu, cpu_grad), (mps, mps_grad) = on_both(results)
    assert_equal(mps, cpu)
    assert_equal(mps_grad, cpu_grad, rtol=8 * EPS, atol=0)


def _loops(num_arcs, num_fsas=1):
    """FSAs of two states: one arc ends in the second, all others are loops."""
    arcs = torch.tensor([[0, 0, i + 1, 0] for i in range(num_arcs - 1)] + [[0, 1, -1, 0]])
    return k2.create_fsa_vec([k2.Fsa(arcs.int())] * num_fsas).to(MPS)


@pytest.mark.parametrize(
    "num_arcs, num_rows, fits",
    [(1, 2**16, True), (2**12, 2**16, True), (1, 2**16 + 1, False), (2**12 + 1, 2**16, False)],
)
def test_ctc_loss_that_may_take_a_second_goes_by_the_lattice(num_arcs, num_rows, fits, placement):
    goes = _k2.mps_prefers_ctc(_loops(num_arcs).arcs, num_rows)
    assert goes == (fits and placement == "metal")


# A core holds the threadgroup memory of 5 threadgroups of ctc_sums; each FSA has two of them.
AT_ONCE = 5 * torch.backends.mps.get_core_count() // 2
WAVES = pytest.mark.parametrize(
    "num_fsas, num_waves", [(1, 1), (AT_ONCE, 1), (AT_ONCE + 1, 2), (8 * AT_ONCE, 8)]
)


@WAVES
def test_ctc_loss_of_several_waves_takes_a_second_earlier(num_fsas, num_waves, monkeypatch):
    monkeypatch.setenv("K2_MPS_FORCE", "metal")
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


# The scores, their rounding to float, the shares of arcs, the gradients.
@pytest.mark.parametrize(
    "name, count",
    [
        ("get_forward_scores", 4),
        ("get_backward_scores", 4),
        # Both directions, the posteriors, their gradient, and two gradients of scores.
        ("get_arc_post", 7),
    ],
)
@SEMIRINGS
def test_dispatches_of_scores(name, log_semiring, count, placement):
    fsas = random_fsa_vec().to(MPS).requires_grad_(True)
    grad = torch.ones_like(getattr(fsas, name)(False, log_semiring))

    def scores():
        fsas._invalidate_cache_()
        getattr(fsas, name)(False, log_semiring).backward(grad)

    assert _dispatches(scores) == {"host": 0, "metal": count}[placement]


# Threadgroup memory has room for 1,024 states.
@pytest.mark.parametrize("num_states", [2, 33, 1023, 1024, 1025, 2500])
def test_states_of_a_graph(num_states, placement):
    num_frames = [5, 4, 2]
    graph = k2.create_fsa_vec([_chain(n, 4) for n in (num_states, 7, max(2, num_states // 2))])
    lattice = _assert_lattices_agree(graph, _log_probs(3, 5, 4), num_frames)
    assert lattice.num_arcs > 0


# From 1 to 32 lanes for a state, and more arcs than registers hold.
@pytest.mark.parametrize("num_states", [4, 7, 12, 20, 40, 130, 200])
def test_arcs_of_a_state(num_states, placement):
    graph = k2.create_fsa_vec([_dense_graph(num_states, 5)] * 2)
    _assert_lattices_agree(graph, _log_probs(2, 6, 5), [6, 3])


def test_one_sequence_for_several_graphs(placement):
    graph = k2.create_fsa_vec([_chain(n, 4) for n in (9, 5, 12, 3)])
    _assert_lattices_agree(graph, _log_probs(3, 8, 4), [8, 6, 1], [0, 0, 2, 2])


@pytest.mark.parametrize("value", NOT_FINITE)
def test_intersect_dense_with_nan_and_infinity(value, placement):
    log_probs = _log_probs(2, 7, 4)
    log_probs[0, 2, 1] = log_probs[1, 4] = value
    graph = k2.create_fsa_vec([_chain(6, 4)] * 2)

    def arcs(device):
        try:
            return _lattice(graph, log_probs, [7, 7], device)[0].arcs.values()
        except RuntimeError:  # k2's own checks of the lattice refuse this on any device.
            return None

    assert_equal_on_both(arcs)


def test_a_label_that_the_scores_do_not_have(placement):
    # Symbols 0 to 3 exist; symbol 4 would be in the column behind the last one.
    lines = ["0 1 1 0", "0 1 9 0", "1 1 2 0", "1 1 7 0.5", "1 2 -1 0", "2"]
    graph = k2.create_fsa_vec([k2.Fsa.from_str("\n".join(lines))])
    _assert_lattices_agree(graph, _log_probs(1, 5, 4), [5])


def _wide(width, arcs):
    """Layers of `width` states; each state has `arcs` arcs from the layer before."""
    lines = [f"0 {1 + i} {1 + i % 9} {0.01 * (i % 31)}" for i in range(width)]
    first = 1
    for layer in range(2):
        for i in range(width):
            for k in range(arcs):
                dest = first + width + (i * 3 + k * 5) % width
                lines.append(f"{first + i} {dest} {1 + k % 9} {0.1 * ((i + k) % 7) - 0.2}")
        first += width
    last = first + width
    lines += [f"{first + i} {last} -1 {0.02 * (i % 3)}" for i in range(width)]
    lines.append(str(last))
    return k2.connect(k2.Fsa.from_str("\n".join(lines)))


# A threadgroup has at most 1,024 threads.
def _tolerance(log_semiring, placement):
    """Four steps with sums of up to 1,100 terms, a few eps for each term."""
    inexact = log_semiring and placement == "metal"
    return {"atol": 4 * 1100 * EPS, "rtol": 16 * EPS} if inexact else {}


# A threadgroup has at most 1,024 threads.
@pytest.mark.parametrize(
    "width, arcs", [(1, 1), (5, 4), (6, 5), (40, 33), (1023, 2), (1024, 2), (1100, 3)]
)
@SEMIRINGS
def test_states_of_a_batch(width, arcs, log_semiring, placement):
    def results(fsa):
        double = is_reference_double(fsa, placement)
        forward = fsa.get_forward_scores(double, log_semiring)
        backward = fsa.get_backward_scores(double, log_semiring)
        tot = fsa.get_tot_scores(double, log_semiring)
        (tot * torch.tensor([1.0, 2.0], device=tot.device)).sum().backward()
        return forward, backward, tot, fsa.grad

    fsas = k2.create_fsa_vec([_wide(width, arcs), _wide(3, 2)])
    assert_equal_on_both(results, fsas, **_tolerance(log_semiring, placement))


@pytest.mark.parametrize("width, arcs", [(1, 1), (40, 33), (31, 2), (32, 2), (33, 2), (1100, 3)])
@SEMIRINGS
def test_posteriors_of_arcs(width, arcs, log_semiring, placement):
    """The first and the last state have an arc for each state of a layer."""
    fsas = k2.create_fsa_vec([_wide(width, arcs), _wide(3, 2)])
    # In the tropical semiring sums of these gradients are exact in any order.
    weights = torch.randint(-8, 9, (fsas.num_arcs,)) / 4096.0

    def results(fsa):
        post = fsa.get_arc_post(is_reference_double(fsa, placement), log_semiring)
        (post * weights.to(post.device)).sum().backward()
        return post, fsa.grad

    # The gradient of each arc is below 1/512.
    assert_equal_on_both(results, fsas, **_tolerance(log_semiring, placement))


def _set_scores(fsas, indexes, value):
    scores = fsas.scores.clone()
    scores[torch.tensor(indexes)] = value
    fsas.scores = scores  # The assignment writes the scores to the arcs.


@pytest.mark.parametrize("value", NOT_FINITE)
def test_posteriors_with_nan_and_infinity(value, placement):
    fsas = k2.create_fsa_vec([_wide(5, 2), _wide(3, 2), _wide(4, 1)])
    _set_scores(fsas, [1, -1], value)
    forward, backward = torch.randn(2, int(fsas.arcs.shape().tot_size(1)))
    forward[3] = backward[-3] = value
    grad = fsas.scores.detach()

    def results(device):
        fsa = fsas.to(device)
        post = _k2.get_arc_post_float(fsa.arcs, forward.to(device), backward.to(device))
        assert not torch.isfinite(post).all()
        incoming = fsa._get_incoming_arcs()
        return post, _k2.backprop_get_arc_post_float(fsa.arcs, incoming, grad.to(device))

    (cpu, cpu_grads), (mps, mps_grads) = on_both(results)
    assert_equal(mps, cpu)
    # The sums over an FSA are in another order.
    assert_equal(mps_grads, cpu_grads, atol=20 * EPS, rtol=0)


EQUAL_PATHS = "0 1 1 0.5\n0 1 2 0.5\n0 2 3 0.5\n1 2 4 0\n1 2 5 0\n2 3 -1 0\n3"


@pytest.mark.parametrize("name", ["get_forward_scores", "get_backward_scores", "get_arc_post"])
def test_the_gradient_of_equal_paths(name, placement):
    def gradient(fsa):
        ans = getattr(fsa, name)(False, False)
        ans.backward(torch.arange(len(ans), device=ans.device).float())
        return fsa.grad

    assert_equal_on_both(gradient, k2.create_fsa_vec([k2.Fsa.from_str(EQUAL_PATHS)] * 3))


def test_the_same_one_of_equal_paths_wins(placement):
    def results(fsa):
        fsa.get_tot_scores(False, False).sum().backward()
        return fsa.grad, k2.shortest_path(fsa, use_double_scores=False)

    assert_equal_on_both(results, k2.create_fsa_vec([k2.Fsa.from_str(EQUAL_PATHS)] * 3))


@SEMIRINGS
def test_scores_of_fsas_without_paths(log_semiring, placement):
    empty = k2.Fsa.from_str("0 1 1 0.5\n2 3 -1 0.25\n3")  # 0 does not reach 3
    fsas = k2.create_fsa_vec([empty, _wide(3, 2)])
    for name in ("get_forward_scores", "get_backward_scores", "get_tot_scores", "get_arc_post"):
        cpu, mps = on_both(lambda fsa: getattr(fsa, name)(False, log_semiring), fsas)
        assert torch.isinf(cpu).any()
        assert_equal(mps, cpu, atol=20 * EPS, rtol=0)


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("value", NOT_FINITE)
@SEMIRINGS
def test_scores_with_nan_and_infinity(log_semiring, value, double, placement):
    fsas = k2.create_fsa_vec([_wide(5, 2), _wide(3, 2), _wide(4, 1)])
    _set_scores(fsas, [1, 6, -1], value)
    tolerance = {}
    if log_semiring and placement == "metal" and not double:
        tolerance = {"atol": 20 * EPS, "rtol": 0}
    for name in ("get_forward_scores", "get_backward_scores"):

        def scores(fsa):
            of_double = double or is_reference_double(fsa, placement)
            return getattr(fsa, name)(of_double, log_semiring)

        cpu, mps = on_both(scores, fsas)
        assert not torch.isfinite(cpu).all()
        assert_equal(mps, cpu, **tolerance)


@SEMIRINGS
def test_two_runs_give_the_same_bits(log_semiring, placement):
    fsas = random_fsa_vec(5).to(MPS)

    def run():
        fsa = fsas.clone().requires_grad_(True)
        post = fsa.get_arc_post(False, log_semiring)
        post.exp().sum().backward()
        return post, fsa.grad

    for first, second in zip(run(), run()):
        assert torch.equal(first, second)


def test_a_lattice_of_several_dispatches_is_the_same(monkeypatch):
    """Work is counted as arcs of all FSAs times frames of the longest: 2^28 and more."""
    monkeypatch.setenv("K2_MPS_FORCE", "metal")
    num_frames, num_symbols = 2500, 4
    graph = k2.create_fsa_vec([_chain(8, num_symbols), _dense_graph(330, num_symbols)])
    assert graph.num_arcs * num_frames > 1 << 28
    log_probs = _log_probs(2, num_frames, num_symbols)
    _assert_lattices_agree(graph, log_probs, [num_frames, 2])

    def dispatches(num_frames):
        dense = k2.DenseFsaVec(log_probs.to(MPS), _segments([num_frames, 2]))
        with k2.mps.counters() as counted:
            k2.intersect_dense(graph.to(MPS), dense, output_beam=12)
        return counted.dispatches

    assert dispatches(num_frames) == dispatches(100) + 1
