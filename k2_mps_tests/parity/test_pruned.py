"""intersect_dense_pruned gives bit for bit identical lattices in Metal and on the CPU.

The tests compare states, arcs, the order of both, arc maps, properties and gradients.  A score is a
maximum, or a sum of two floats in the CPU's order.  So all results must be equal.
"""

import _k2
import k2
import pytest
import torch

from k2_mps_tests.parity import waits
from k2_mps_tests.parity.helpers import MPS, assert_equal, assert_equal_on_both
from k2_mps_tests.parity.problems import KINDS, bush, loops, pick, random_graphs, random_scores

pytestmark = pytest.mark.usefixtures("metal")


def _case():
    """Returns random input: graphs, log-probs, segments, options, allow_partial."""
    # k2 prunes in windows of 30 frames.  A window begins 20 frames after the previous window.
    num_seqs, num_frames, num_symbols = pick(1, 2, 5), pick(1, 4, 20, 21, 65), pick(2, 4, 9, 40)
    log_probs, segments = random_scores(num_seqs, num_frames, num_symbols, pick(0, 0.5, 2, 20))
    special = pick(None, None, float("-inf"), -1.0e10)
    if special is not None:
        log_probs[torch.rand_like(log_probs) < 0.1] = special
    graphs = random_graphs(pick(*KINDS), num_symbols, pick(1, num_seqs))
    min_active = pick(0, 2, 9)
    beams = pick(2.0, 6.3, 20.0), pick(0.5, 4.0, 8.1)
    options = *beams, min_active, min_active + pick(3, 20, 1000)
    return graphs, log_probs, segments, options, pick(False, True)


def _lattice(device, graphs, log_probs, segments, options, allow_partial):
    """Returns (lattice, gradient of the log-probs, gradient of the graphs' scores)."""
    leaf = log_probs.clone().to(device).requires_grad_(True)
    graphs = graphs.to(device).clone().requires_grad_(True)
    dense = k2.DenseFsaVec(leaf, segments)
    names = {"seqframe_idx_name": "seqframe", "frame_idx_name": "frame"}
    lattice = k2.intersect_dense_pruned(
        graphs, dense, *options, **names, allow_partial=allow_partial
    )
    generator = torch.Generator().manual_seed(5)
    weights = torch.randn(lattice.num_arcs, generator=generator).to(device)
    (lattice.scores * weights).sum().backward()
    return lattice, leaf.grad, graphs.scores.grad


@pytest.mark.parametrize("seed", range(60))
def test_any_lattice(seed):
    torch.manual_seed(seed)
    case = _case()
    cpu, mps = _lattice("cpu", *case), _lattice(MPS, *case)
    assert_equal(mps, cpu)
    assert _k2.get_fsa_vec_basic_properties(mps[0].arcs) == cpu[0].properties


@pytest.mark.parametrize("seed", range(60, 90))
def test_several_threadgroups_for_a_sequence(seed):
    torch.manual_seed(seed)
    graphs, log_probs, segments, options, allow_partial = case = _case()
    dense = k2.DenseFsaVec(log_probs, segments)
    inputs = *options, allow_partial
    arcs, *maps = _k2.intersect_dense_pruned(graphs.arcs, dense.dense_fsa_vec, *inputs)
    graphs, dense, *_ = _inputs_on_mps(case)
    made, _ = _k2.mps_intersect_dense_pruned(
        graphs.arcs, dense.dense_fsa_vec, int(segments[:, 2].max()) + 1, *inputs, groups=pick(2, 3)
    )
    assert_equal(k2.Fsa(made.fsas), k2.Fsa(arcs))
    assert_equal([made.arc_map_a, made.arc_map_b], maps)
    assert made.properties == k2.Fsa(arcs).properties


def _topo_case(num_frames, beams=(8.0, 5.0), **options):
    torch.manual_seed(11)
    num_seqs = len(num_frames)
    log_probs = torch.randn(num_seqs, max(*num_frames, 1), 6).log_softmax(-1)
    segments = torch.tensor([[i, 0, n] for i, n in enumerate(num_frames)], dtype=torch.int32)
    topo = k2.create_fsa_vec([k2.ctc_topo(5)])
    active = options.get("active", (2, 100))
    return topo, log_probs, segments, (*beams, *active), options.get("allow_partial", False)


def _on_both(*case):
    assert_equal_on_both(lambda device: _lattice(device, *case))


def test_sequences_without_frames():
    _on_both(*_topo_case([40, 3, 0]))


def test_scores_whose_sums_round():
    case = _topo_case([40, 22], beams=(1e8, 1e8))
    case[1].copy_((torch.rand_like(case[1]) - 0.5) * 4e7)
    _on_both(*case)


def test_a_beam_that_grows_beyond_float():
    """There are fewer states than min_active, so k2 widens the beam in each frame."""
    _on_both(*_topo_case([450], active=(50, 100)))


def test_an_infinite_output_beam():
    """An arc into a state that reaches no final state is not in the lattice."""
    graph = k2.create_fsa_vec([k2.Fsa.from_str("0 1 1 0\n0 2 2 0\n1 1 1 0\n1 3 -1 0\n3")])
    _, *rest = _topo_case([30, 12], beams=(20.0, float("inf")))
    _on_both(graph, *rest)
    assert 2 not in _lattice("cpu", graph, *rest)[0].labels


def test_a_final_state_is_not_reached():
    graph = k2.create_fsa_vec([k2.linear_fst([1, 2], [1, 2])])
    for allow_partial in (False, True):
        _on_both(graph, *_topo_case([30, 1, 0], allow_partial=allow_partial)[1:])


@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_the_host_gets_scores_that_are_not_numbers(score):
    case = _topo_case([30, 12])
    case[1][0, 4, 2] = score
    _on_both(*case)
    assert "are infinite, NaN" in k2.mps.explain()


def test_the_host_gets_beams_that_are_not_normal():
    _on_both(*_topo_case([30, 12], beams=(1e-35, 5.0)))


def _inputs_on_mps(case):
    graphs, log_probs, segments, options, allow_partial = case
    dense = k2.DenseFsaVec(log_probs.to(MPS), segments)
    return graphs.to(MPS), dense, *options, allow_partial


def test_one_wait_for_a_batch():
    inputs = _inputs_on_mps(_topo_case([45, 30, 9]))
    found, _ = waits.counted(lambda: k2.intersect_dense_pruned(*inputs[:-1]))
    assert found == 1


def test_the_same_bits_in_all_runs():
    inputs = _inputs_on_mps(_topo_case([65, 30]))
    first = k2.intersect_dense_pruned(*inputs[:-1]).arcs.values().cpu()
    for _ in range(20):
        again = k2.intersect_dense_pruned(*inputs[:-1])
        assert torch.equal(again.arcs.values().cpu(), first)


def test_more_memory_where_the_estimate_was_too_small():
    """Here, far more states than max_active stay active, which k2 allows.

    So the first call must allocate memory again.  The next call allocates enough at once.
    """
    case = (bush(300), *_topo_case([25, 22], beams=(100.0, 100.0), active=(0, 1))[1:])
    inputs = _inputs_on_mps(case)
    first, _ = waits.counted(lambda: k2.intersect_dense_pruned(*inputs[:-1]))
    assert first > 1
    again, _ = waits.counted(lambda: k2.intersect_dense_pruned(*inputs[:-1]))
    assert again == 1
    _on_both(*case)


def test_a_lattice_has_more_states_than_estimated():
    case = loops(300), *_topo_case([65, 22], beams=(8.0, 8.0), active=(2, 1000))[1:]
    inputs = _inputs_on_mps(case)
    found = [waits.counted(lambda: k2.intersect_dense_pruned(*inputs[:-1]))[0] for _ in range(2)]
    assert found == [2, 1]
    _on_both(*case)


def _graph_of_many_states(num_states):
    """Returns the arcs of a graph.  No arc enters or leaves state 1, 2, ..., num_states - 2."""
    row_splits = torch.full((num_states + 1,), 2, dtype=torch.int32)
    row_splits[0] = 0
    shape = k2.ragged.create_ragged_shape2(row_splits=row_splits, cached_tot_size=2)
    top = k2.ragged.regular_ragged_shape(1, num_states)
    arcs = torch.tensor([[0, 0, 1, 0], [0, num_states - 1, -1, 0]], dtype=torch.int32)
    return _k2.RaggedArc(top.compose(shape), arcs)


def test_the_sequences_take_turns_if_all_together_need_too_much_memory():
    """Each sequence's table takes 0.48 GB: 16 bytes for each of 30 million states."""
    graph = _graph_of_many_states(30_000_000)
    _, log_probs, segments, options, allow_partial = _topo_case([7, 5, 25])
    inputs = *options, allow_partial
    arcs, *maps = _k2.intersect_dense_pruned(
        graph, k2.DenseFsaVec(log_probs, segments).dense_fsa_vec, *inputs
    )
    dense = k2.DenseFsaVec(log_probs.to(MPS), segments).dense_fsa_vec
    for groups in (1, 2):
        made, _ = _k2.mps_intersect_dense_pruned(graph.to(MPS), dense, 26, *inputs, groups=groups)
        assert_equal(k2.Fsa(made.fsas), k2.Fsa(arcs))
        assert_equal([made.arc_map_a, made.arc_map_b], maps)


def test_the_host_decodes_if_the_gpu_needs_too_much_memory():
    """The kernels' tables would take 1.3 GB: 16 bytes for each of 80 million states."""
    case = _topo_case([0])
    dense = k2.DenseFsaVec(case[1].to(MPS), case[2])
    graph = _graph_of_many_states(80_000_000).to(MPS)
    arguments = graph, dense.dense_fsa_vec, 1, *case[3], False
    made, why_host = _k2.mps_intersect_dense_pruned(*arguments)
    assert made is None and "1 GiB" in why_host


@pytest.mark.parametrize("seed", range(5))
def test_scores_whose_rounding_errors_are_as_large_as_the_beam(seed):
    """Metal drops an arc before the pruning of the window only if no rounding keeps the arc."""
    torch.manual_seed(seed)
    log_probs = torch.randint(-3, 1, (1, 45, 4)).float() - 1.37e7
    graph = k2.create_fsa_vec([k2.ctc_topo(3)])
    graph.scores = torch.randn(graph.num_arcs)
    options = 20.0, 4.0, 1, 1000
    case = graph, log_probs, torch.tensor([[0, 0, 45]], dtype=torch.int32), options, False
    cpu, mps = _lattice("cpu", *case), _lattice(MPS, *case)
    assert_equal(mps, cpu)


def test_a_graph_without_states_gives_a_lattice_without_states():
    """Other graphs whose final state no path reaches give a lattice with one more state."""
    graph = k2.create_fsa_vec([k2.Fsa.from_str(""), k2.Fsa.from_str("0 1 1 0\n1 2 -1 0\n2")])
    segments = torch.tensor([[0, 0, 5], [1, 0, 5]], dtype=torch.int32)
    log_probs = torch.randn(2, 5, 4).log_softmax(-1)
    shapes = []
    for device in ("cpu", "mps"):
        dense = k2.DenseFsaVec(log_probs.to(device), segments)
        lattice = k2.intersect_dense_pruned(graph.to(device), dense, 8.0, 6.0, 1, 100)
        shapes.append([lattice[i].shape[0] for i in range(2)])
    assert shapes[1] == shapes[0]
    assert shapes[0][0] == 0
