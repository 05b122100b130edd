"""k2 makes a graph's index, which the kernels use, only once.  Host and GPU make the same index."""

import k2
import pytest
import torch
from k2.mps.graph_index import GraphIndex, graph_index

from k2_mps_tests.parity.helpers import MPS, random_fsa_vec

MEMBERS = ("incoming_begins", "incoming", "by_label", "fsa_of_arc", "labels", "every_fsa")


pytestmark = pytest.mark.usefixtures("metal")


def _members(index):
    return {name: getattr(index, name).cpu() for name in MEMBERS}


def _expected(fsas):
    """Returns the members that the index should have, computed by k2 and torch on the CPU."""
    incoming = fsas._get_incoming_arcs()
    begins = fsas.arcs.shape().remove_axis(1).row_splits(1)
    labels = [fsas.labels[i:k] for i, k in zip(begins.tolist(), begins[1:].tolist())]
    fsa_numbers = [torch.full((len(some),), i, dtype=torch.int32) for i, some in enumerate(labels)]
    orders = [i + some.sort(stable=True).indices for i, some in zip(begins.tolist(), labels)]
    return {
        "incoming_begins": incoming.shape.row_splits(2),
        "incoming": incoming.values,
        "by_label": torch.cat(orders).int(),
        "fsa_of_arc": torch.cat(fsa_numbers),
        "labels": torch.tensor(
            [[some.min(), some.max()] if len(some) else [-1, -1] for some in labels],
            dtype=torch.int32,
        ),
        "every_fsa": torch.arange(len(labels), dtype=torch.int32),
    }


def _graphs():
    empty = k2.Fsa.from_str("")
    symbols = [[3], [7, 7, 1], [], list(range(1, 40))]
    yield k2.ctc_graph(symbols)
    yield k2.create_fsa_vec([empty, k2.linear_fsa([4, 2]), empty])
    yield k2.create_fsa_vec([k2.ctc_topo(30)])
    yield random_fsa_vec(5)


@pytest.mark.parametrize("graph", list(_graphs()), ids=["ctc", "empty", "topo", "random"])
@pytest.mark.parametrize("by_host", [True, False])
def test_host_and_gpu_make_the_same_index(graph, by_host):
    expected = _expected(graph)
    on_mps = graph.to(MPS)
    made = GraphIndex(on_mps, by_host)
    made.fill()
    found = _members(made.index)
    for name in MEMBERS:
        assert torch.equal(found[name], expected[name]), name
    labels = int(graph.labels.min()), int(graph.labels.max())
    assert made.labels() == (labels if by_host else None)
    # The GPU may still copy the labels.
    assert made.labels() in (None, labels)
    torch.mps.synchronize()
    assert made.labels() == labels


def test_no_memory_is_reserved_for_the_index_of_a_large_graph(monkeypatch):
    graph = k2.ctc_graph([[3, 1]])
    for most in (graph.num_arcs, graph.num_arcs - 1):
        monkeypatch.setattr("k2.mps.graph_index._MAX_ARCS", most)
        large = graph.to(MPS)
        assert ("mps_graph_index" in large._cache) == (graph.num_arcs <= most)
    with k2.mps.counters() as counted:
        found = _members(graph_index(large).index)
    assert counted.dispatches == 0  # The host makes the index.
    expected = _expected(graph)
    assert all(torch.equal(found[name], expected[name]) for name in MEMBERS)


def test_a_lattice_by_the_gpu_gets_its_index_by_the_gpu():
    graph = k2.ctc_graph([[1, 2], [2]], device=MPS)
    segments = torch.tensor([[0, 0, 9], [1, 0, 7]], dtype=torch.int32)
    dense = k2.DenseFsaVec(torch.randn(2, 9, 4, device=MPS), segments)
    lattice = k2.intersect_dense(graph, dense, 10)
    with k2.mps.counters() as counted:
        index = graph_index(lattice).index
    assert (counted.dispatches, counted.gates) == (1, 0)
    expected = _expected(lattice.to("cpu"))
    for name, found in _members(index).items():
        assert torch.equal(found, expected[name]), name


def _new():
    return k2.ctc_graph([[1, 2], [3, 3]], device=MPS)


def labels_set(graph):
    graph.labels = graph.labels.where(graph.labels != 2, 1)


def labels_set_in_place(graph):
    graph.labels[graph.labels == 2] = 1


def inverted(graph):
    graph.invert_()


@pytest.mark.parametrize("change", [labels_set, labels_set_in_place, inverted])
def test_changed_labels_make_a_new_index(change):
    graph = _new()
    before = graph_index(graph)
    assert graph_index(graph) is before
    change(graph)
    after = graph_index(graph)
    assert after is not before
    expected = _expected(k2.Fsa(graph.arcs.to(torch.device("cpu"))))
    assert torch.equal(after.index.by_label.cpu(), expected["by_label"])


def scores_set(graph):
    graph.scores = torch.randn(graph.num_arcs, device=MPS)


def attribute_set(graph):
    graph.aux_labels = graph.aux_labels.clone()


@pytest.mark.parametrize("change", [scores_set, attribute_set])
def test_other_changes_keep_the_index(change):
    graph = _new()
    before = graph_index(graph)
    change(graph)
    assert graph_index(graph) is before


def test_a_clone_shares_the_index():
    graph = _new()
    assert graph_index(graph.clone()) is graph_index(graph)


def test_the_labels_of_a_clone_are_its_own():
    graph = _new()
    clone = graph.clone()  # The host has not yet filled the index.
    labels_set(clone)
    for fsas in (graph, clone):
        found = _members(graph_index(fsas).index)["by_label"]
        assert torch.equal(found, _expected(fsas.to("cpu"))["by_label"])


def _loss(graph, device):
    torch.manual_seed(1)
    segments = torch.tensor([[0, 0, 12], [1, 0, 12]], dtype=torch.int32)
    dense = k2.DenseFsaVec(torch.randn(2, 12, 4).log_softmax(-1).to(device), segments)
    return k2.ctc_loss(graph, dense, delay_penalty=0.5).cpu()


def repeats_set(graph):
    graph._is_repeat_token_ = graph.labels == 1


def aux_labels_set(graph):
    graph.aux_labels = torch.zeros_like(graph.aux_labels)


def aux_labels_set_in_place(graph):
    graph.aux_labels[::2] = 0


def repeats_then_labels_set(graph):
    repeats_set(graph)
    labels_set(graph)


def repeats_then_blanks_set_in_place(graph):
    """Arcs with label 0 get no penalty."""
    repeats_set(graph)
    _loss(graph, graph.device)  # keeps which arcs are penalized
    graph.labels[graph.labels == 2] = 0


CHANGES = [
    repeats_set,
    aux_labels_set,
    aux_labels_set_in_place,
    repeats_then_labels_set,
    repeats_then_blanks_set_in_place,
]


@pytest.mark.parametrize("change", CHANGES)
def test_changed_attributes_change_the_penalized_arcs(change):
    on_mps, on_cpu = _new(), _new().to("cpu")
    before = _loss(on_mps, MPS)
    assert torch.equal(_loss(on_mps, MPS), before)
    for graph in (on_mps, on_cpu):
        change(graph)
    after = _loss(on_mps, MPS)
    torch.testing.assert_close(after, _loss(on_cpu, "cpu"), atol=0, rtol=1.2e-7)
    assert not torch.equal(after, before)
