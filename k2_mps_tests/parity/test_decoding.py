"""Decoding on mps gives the CPU's results: lattices, one-best, n-best, rescoring, RNN-T streams."""

import k2
import pytest
import torch

from k2_mps_tests.parity.helpers import assert_equal_on_both


def _lattice(device):
    torch.manual_seed(83)
    log_probs = torch.randn(3, 30, 8).log_softmax(-1).to(device)
    return k2.get_lattice(
        log_prob=log_probs,
        log_prob_len=torch.tensor([30, 22, 9], dtype=torch.int32),
        decoding_graph=k2.ctc_topo(7, device=device),
        search_beam=15,
        output_beam=6,
        min_active_states=10,
        max_active_states=200,
    )


def _one_best(lattice, double):
    best = k2.one_best_decoding(lattice, use_double_scores=double)
    found = k2.get_aux_labels(best)
    assert all(found)
    return best, found


def _nbest(lattice):
    # k2.random_paths draws no random numbers: it chooses paths at equal steps of probability.
    return k2.Nbest.from_lattice(lattice, num_paths=40, use_double_scores=True, nbest_scale=0.5)


def _top_k(lattice):
    nbest = _nbest(lattice).top_k(2)
    # k2 makes this shape on the CPU, whatever the device.
    return nbest.fsa, nbest.shape.row_splits(1).tolist()


def _nbest_list(lattice):
    lattice.phones = lattice.labels.clone()
    return k2.nbest.generate_nbest_list(lattice, num_paths=20)


RESULTS_OF_LATTICE = {
    "get_lattice": lambda lattice: lattice,
    "one_best": lambda lattice: _one_best(lattice, double=False),
    "one_best, double": lambda lattice: _one_best(lattice, double=True),
    "nbest": _nbest,
    "total_scores": lambda lattice: _nbest(lattice).total_scores(),
    "top_k": _top_k,
    "generate_nbest_list": _nbest_list,
    "build_levenshtein_graphs": lambda lattice: _nbest(lattice).build_levenshtein_graphs(),
}


@pytest.mark.parametrize("name", RESULTS_OF_LATTICE)
def test_functions_of_a_lattice(name):
    assert_equal_on_both(lambda device: RESULTS_OF_LATTICE[name](_lattice(device)))


def test_whole_lattice_rescoring():
    def results(device):
        # A grammar that accepts every word, at a cost that grows with the label.
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
        return best.get_tot_scores(True, False), k2.get_aux_labels(best)

    # The order of sums differs between the devices.
    assert_equal_on_both(results, atol=1e-5, rtol=1e-6)


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
        contexts += [shape.row_splits(1), context]
        logprobs = torch.randn(context.shape[0], 10).log_softmax(-1)
        streams.advance(logprobs.to(device))
    streams.terminate_and_flush_to_streams()
    return *contexts, streams.format_output([4, 5])


def test_rnnt_decoding_streams():
    assert_equal_on_both(_rnnt_streams)


def test_online_dense_intersecter():
    def lattice(device):
        topo = k2.create_fsa_vec([k2.ctc_topo(5, device=device)])
        intersecter = k2.OnlineDenseIntersecter(topo, 2, 8, 6, 5, 50)
        states = [k2.DecodeStateInfo()] * 2
        segments = torch.tensor([[0, 0, 4], [1, 0, 4]], dtype=torch.int32)
        for chunk in range(3):
            torch.manual_seed(chunk)
            log_probs = torch.randn(2, 4, 6).log_softmax(-1).to(device)
            lattice, states = intersecter.decode(k2.DenseFsaVec(log_probs, segments), states)
        return lattice

    assert_equal_on_both(lattice)
