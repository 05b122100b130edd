"""Decoding: lattices, one-best, n-best, rescoring, RNN-T streams."""

import k2
import pytest
import torch

from k2_mps_tests.parity.helpers import MPS, assert_same

DEVICES = ("cpu", "mps")


def _lattice(device, requires_grad=False):
    torch.manual_seed(83)
    log_probs = torch.randn(3, 30, 8).log_softmax(-1).to(device)
    log_probs.requires_grad_(requires_grad)
    segments = torch.tensor([[0, 0, 30], [1, 0, 22], [2, 0, 9]], dtype=torch.int32)
    return k2.get_lattice(
        log_prob=log_probs,
        log_prob_len=segments[:, 2],
        decoding_graph=k2.ctc_topo(7, device=device),
        search_beam=15,
        output_beam=6,
        min_active_states=10,
        max_active_states=200,
    )


def test_get_lattice():
    cpu, mps = [_lattice(d) for d in DEVICES]
    assert mps.device == MPS
    assert_same(mps.arcs.values(), cpu.arcs.values())
    assert_same(mps.aux_labels, cpu.aux_labels)


@pytest.mark.parametrize("double", [True, False])
def test_one_best(double):
    hyps = []
    for device in DEVICES:
        best = k2.one_best_decoding(_lattice(device), use_double_scores=double)
        assert best.device.type == device
        hyps.append(k2.get_aux_labels(best))
    assert hyps[0] == hyps[1]
    assert all(hyps[0])


def _nbest(device):
    # random_paths takes paths at equal distances of probability, not at random.
    return k2.Nbest.from_lattice(
        _lattice(device), num_paths=40, use_double_scores=True, nbest_scale=0.5
    )


def test_nbest():
    cpu, mps = [_nbest(d) for d in DEVICES]
    assert mps.fsa.device == MPS
    assert mps.shape.tot_sizes() == cpu.shape.tot_sizes()
    assert_same(mps.fsa.arcs.values(), cpu.fsa.arcs.values())
    cpu_scores, mps_scores = cpu.total_scores(), mps.total_scores()
    assert_same(mps_scores.values, cpu_scores.values.float())
    assert mps_scores.dtype == torch.float32


def test_top_k():
    cpu, mps = [_nbest(d).top_k(2) for d in DEVICES]
    assert mps.shape.row_splits(1).tolist() == [0, 2, 4, 6]
    assert_same(mps.fsa.arcs.values(), cpu.fsa.arcs.values())


def test_nbest_intersect():
    results = []
    for device in DEVICES:
        lattice = _lattice(device)
        lattice.phones = lattice.labels.clone()
        nbest = k2.nbest.generate_nbest_list(lattice, num_paths=20)
        results.append(nbest.intersect(lattice))
    cpu, mps = results
    assert mps.fsa.device == MPS
    assert mps.shape.row_splits(1).tolist() == cpu.shape.row_splits(1).tolist()
    # remove_epsilon has one algorithm for the CPU and one for devices.  The paths are
    # the same, but the score of an epsilon arc may move to another arc.
    assert_same(mps.total_scores().values, cpu.total_scores().values.float(), atol=1e-5, rtol=1e-6)


def test_whole_lattice_rescoring():
    bests = []
    for device in DEVICES:
        # A grammar that accepts every word, some at a cost.
        lines = [f"0 0 {w} {-0.1 * w}" for w in range(1, 8)]
        grammar = k2.Fsa.from_str("\n".join(lines + ["0 1 -1 0", "1"]))
        grammar = k2.add_epsilon_self_loops(k2.create_fsa_vec([k2.arc_sort(grammar)])).to(device)
        grammar = k2.arc_sort(grammar)
        lattice = _lattice(device)
        lattice.lm_scores = torch.zeros_like(lattice.scores)
        grammar.lm_scores = grammar.scores.clone()
        rescored = k2.nbest.whole_lattice_rescoring(lattice, grammar)
        assert rescored.device.type == device
        best = k2.shortest_path(rescored, use_double_scores=True)
        bests.append((best.get_tot_scores(True, False), k2.get_aux_labels(best)))
    (cpu, cpu_hyps), (mps, mps_hyps) = bests
    assert_same(mps, cpu.float(), atol=1e-5, rtol=1e-6)
    assert mps_hyps == cpu_hyps


def test_generate_nbest_list():
    lists = []
    for device in DEVICES:
        lattice = _lattice(device)
        lattice.phones = lattice.labels.clone()
        lists.append(k2.nbest.generate_nbest_list(lattice, num_paths=20))
    cpu, mps = lists
    assert mps.shape.tot_sizes() == cpu.shape.tot_sizes()
    assert_same(mps.fsa.arcs.values(), cpu.fsa.arcs.values())


def test_build_levenshtein_graphs():
    cpu, mps = [_nbest(d).build_levenshtein_graphs() for d in DEVICES]
    assert mps.device == MPS
    assert_same(mps.arcs.values(), cpu.arcs.values())


def _rnnt_streams(device):
    torch.manual_seed(89)
    graphs = [k2.ctc_topo(5, device=device), k2.trivial_graph(3, device=device)]
    for i, graph in enumerate(graphs):
        graph.attr = torch.full((graph.num_arcs,), i, device=device)
    streams = k2.RnntDecodingStreams(
        [k2.RnntDecodingStream(graph) for graph in graphs], k2.RnntDecodingConfig(10, 2, 3.0, 3, 3)
    )
    contexts = []
    for _ in range(5):
        shape, context = streams.get_contexts()
        contexts.append((shape.row_splits(1), context))
        logprobs = torch.randn(context.shape[0], 10).log_softmax(-1)
        streams.advance(logprobs.to(device))
    streams.terminate_and_flush_to_streams()
    return contexts, streams.format_output([4, 5])


def test_rnnt_decoding_streams():
    (cpu_contexts, cpu), (mps_contexts, mps) = [_rnnt_streams(d) for d in DEVICES]
    for m, c in zip(mps_contexts, cpu_contexts):
        assert_same(m[0], c[0])
        assert_same(m[1], c[1])
    assert mps.device == MPS
    assert_same(mps.arcs.values(), cpu.arcs.values())
    assert_same(mps.attr, cpu.attr)


def test_pruned_ranges_to_lattice():
    results = []
    for device in DEVICES:
        torch.manual_seed(97)
        ranges = torch.tensor(
            [
                [[0, 1, 2], [0, 1, 2], [1, 2, 3], [2, 3, 4]],
                [[0, 1, 2], [0, 1, 2], [0, 1, 2], [1, 2, 3]],
            ],
            dtype=torch.int32,
            device=device,
        )
        frames = torch.tensor([4, 3], dtype=torch.int32, device=device)
        symbols = torch.tensor([[3, 5, 1, 2], [2, 4, 6, 0]], device=device)
        logits = torch.randn(2, 4, 3, 7).log_softmax(-1).to(device)
        arcs, arc_map = k2.pruned_ranges_to_lattice(ranges, frames, symbols, logits)
        results.append((arcs.values(), arc_map))
    for m, c in zip(results[1], results[0]):
        assert_same(m, c)
