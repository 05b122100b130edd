"""Intersections: with dense FSAs, pruned and not, and of general FSAs."""

import k2
import pytest
import torch

from k2_mps_tests.parity.helpers import (
    MPS,
    assert_equal_on_both,
    is_reference_double,
    random_fsa_vec,
)


def _dense(device, num_frames=(12, 9, 5), num_symbols=6, seed=5):
    """Returns (DenseFsaVec on `device`, its log-probs, a leaf)."""
    torch.manual_seed(seed)
    log_probs = torch.randn(len(num_frames), max(num_frames), num_symbols).log_softmax(-1)
    segments = torch.tensor([[i, 0, n] for i, n in enumerate(num_frames)], dtype=torch.int32)
    leaf = log_probs.to(device).requires_grad_(True)
    return k2.DenseFsaVec(leaf, segments), leaf


def _graph(device):
    graph = k2.ctc_graph([[1, 2, 2], [3], [4, 5]], device=device)
    graph.requires_grad_(True)
    graph.attr = torch.arange(graph.num_arcs, dtype=torch.float32, device=device)
    graph.tag = k2.RaggedTensor(
        [[i] * (i % 3) for i in range(graph.num_arcs)], device=device, dtype=torch.int32
    )
    return graph


@pytest.mark.parametrize("double", [True, False])
def test_intersect_dense(double, placement):
    def results(device):
        dense, leaf = _dense(device)
        graph = _graph(device)
        lattice = k2.intersect_dense(
            graph, dense, output_beam=10, seqframe_idx_name="seqframe", frame_idx_name="frame"
        )
        of_double = double or is_reference_double(lattice, placement)
        lattice.get_tot_scores(use_double_scores=of_double, log_semiring=True).sum().backward()
        return lattice, leaf.grad, graph.grad

    assert_equal_on_both(results)


def test_intersect_dense_with_a_map(placement):
    def results(device):
        dense, leaf = _dense(device)
        graph = _graph(device)
        a_to_b = torch.tensor([0, 0, 2], dtype=torch.int32, device=device)
        lattice = k2.intersect_dense(graph, dense, output_beam=10, a_to_b_map=a_to_b)
        lattice.scores.sum().backward()
        return lattice, leaf.grad, graph.grad

    assert_equal_on_both(results)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("num_frames", [(12, 9, 5), (70, 64, 1)])
def test_intersect_dense_pruned(num_frames, shared):
    def results(device):
        dense, leaf = _dense(device, num_frames)
        graph = k2.ctc_topo(5, device=device) if shared else _graph(device)
        graph.requires_grad_(True)
        names = {"seqframe_idx_name": "seqframe", "frame_idx_name": "frame"}
        lattice = k2.intersect_dense_pruned(graph, dense, 8, 5, 5, 50, **names)
        lattice.get_tot_scores(use_double_scores=True, log_semiring=True).sum().backward()
        return lattice, leaf.grad, graph.grad

    assert_equal_on_both(results)


def test_online_dense_intersecter():
    def lattice(device):
        topo = k2.create_fsa_vec([k2.ctc_topo(5, device=device)])
        intersecter = k2.OnlineDenseIntersecter(topo, 2, 8, 6, 5, 50)
        states = [k2.DecodeStateInfo()] * 2
        for chunk in range(3):
            dense, _ = _dense(device, (4, 4), seed=chunk)
            lattice, states = intersecter.decode(dense, states)
        return lattice

    assert_equal_on_both(lattice)


@pytest.mark.parametrize("sorted_match_a", [True, False])
def test_intersect_device(sorted_match_a):
    def results(device):
        torch.manual_seed(1)
        a, b = [
            k2.arc_sort(random_fsa_vec(n, max_symbol=3)).to(device).clone().requires_grad_(True)
            for n in (2, 3)
        ]
        b_to_a = torch.tensor([1, 0, 1], dtype=torch.int32, device=device)
        out, *maps = k2.intersect_device(
            a, b, b_to_a_map=b_to_a, sorted_match_a=sorted_match_a, ret_arc_maps=True
        )
        out.scores.sum().backward()
        return out, *maps, a.grad, b.grad

    assert_equal_on_both(results)


@pytest.mark.parametrize("treat_epsilons_specially", [True, False])
def test_intersect(treat_epsilons_specially):
    def results(device):
        torch.manual_seed(2)
        a, b = [k2.arc_sort(random_fsa_vec(2, max_symbol=3)).to(device) for _ in range(2)]
        a = a.clone().requires_grad_(True)
        out = k2.intersect(a, b, treat_epsilons_specially=treat_epsilons_specially)
        tot = k2.top_sort(k2.connect(out)).get_tot_scores(True, log_semiring=True)
        tot.sum().backward()
        assert (tot > float("-inf")).any()
        return tot, a.grad

    # k2 has one algorithm for the CPU and one for devices.  Their results differ in
    # the order of states and arcs, and so in the order of sums.
    assert_equal_on_both(results, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("treat_epsilons_specially", [True, False])
def test_compose(treat_epsilons_specially):
    def scores(device):
        torch.manual_seed(4)
        a = random_fsa_vec(1, max_symbol=3)[0].to(device)
        a.aux_labels = a.labels.clone()
        b = k2.arc_sort(random_fsa_vec(1, max_symbol=3)[0].to(device))
        out = k2.compose(a, b, treat_epsilons_specially=treat_epsilons_specially)
        vec = k2.create_fsa_vec([k2.top_sort(k2.connect(out))])
        tot = vec.get_tot_scores(use_double_scores=True, log_semiring=True)
        assert (tot > float("-inf")).all()
        return tot

    # The order of sums differs, as in test_intersect().
    assert_equal_on_both(scores, atol=1e-5, rtol=1e-5)


def test_fsas_of_two_devices_are_refused():
    dense, _ = _dense(MPS)
    with pytest.raises(RuntimeError):
        k2.intersect_dense(_graph("cpu"), dense, output_beam=10)
