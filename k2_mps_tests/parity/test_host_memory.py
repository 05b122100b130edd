"""What the host makes on mps needs no wait, and yet nobody reads memory that is written again.

k2_mps_tests/waits/planted.py lists the mistakes that these tests must notice.
"""

import gc
import threading

import k2
import pytest
import torch

from k2_mps_tests.parity import calls
from k2_mps_tests.parity.in_threads import run_in_threads

SEGMENTS = torch.tensor([[0, 0, 30], [1, 0, 30]], dtype=torch.int32)


def _drains(function):
    """Returns how often a call waits for an operator that was queued before the call."""
    function()  # fills k2's memory for the host
    with k2.mps.counters() as counted:
        torch.ones(1, device="mps")
        function()
    return counted.drains + counted.torch_waits


def test_new_memory_of_torch_is_not_written_under_an_operator():
    kept = []
    sevens = k2.RaggedTensor([[7] * (1 << 19)])
    for i in range(5):
        # k2 has no idle block of 2 MiB, so it gets memory that torch has just freed.
        old = torch.full((1 << 19,), i, dtype=torch.int32, device="mps")
        doubled = old * 2
        del old
        kept.append(sevens.to("mps"))
        assert (doubled == 2 * i).all()


def test_memory_without_a_block_is_not_written_under_an_operator():
    bytes_of_arcs = 16 * k2.ctc_topo(600).num_arcs
    assert bytes_of_arcs > 4 << 20  # more than a block
    k2.ctc_topo(600, device="mps")
    old = torch.full((bytes_of_arcs // 4,), 3, dtype=torch.int32, device="mps")
    doubled = old * 2
    del old
    k2.ctc_topo(600, device="mps")  # torch gives this graph the memory of `old`
    assert (doubled == 6).all()


def test_operators_read_what_they_were_given_although_its_memory_is_free():
    found = []
    for i in range(40):
        ragged = k2.RaggedTensor([[i] * 60], device="mps")
        found.append(ragged.values * 2)
        del ragged
        gc.collect()
    assert [x[0].item() for x in found] == [2 * i for i in range(40)]


def test_kernels_read_what_they_were_given_although_its_memory_is_free(metal):
    log_probs = torch.randn(2, 30, 10).log_softmax(-1)
    symbols = [[[1, 2, 3]] * 2, [[4, 5, 6]] * 2]

    def loss(device, targets):
        dense = k2.DenseFsaVec(log_probs.to(device), SEGMENTS)
        return k2.ctc_loss(k2.ctc_graph(targets, device=device), dense, reduction="sum")

    expected = torch.stack([loss("cpu", targets) for targets in symbols * 10])
    found = torch.stack([loss("mps", targets) for targets in symbols * 10])
    torch.testing.assert_close(found.cpu(), expected)


def test_the_host_reads_what_the_gpu_wrote_through_a_tensor():
    ragged = k2.RaggedTensor([[1, 2], [3]], device="mps")
    ragged.values.mul_(2)
    assert ragged.tolist() == [[2, 4], [6]]
    row_splits = ragged.shape.row_splits(1)
    row_splits.copy_(torch.tensor([0, 1, 3], dtype=torch.int32, device="mps") * 1)
    assert [ragged[0].tolist(), ragged[1].tolist()] == [[2], [4, 6]]
    assert ragged.shape.row_ids(1).tolist() == [0, 1, 1]


def test_the_host_does_not_write_under_an_operator():
    ragged = k2.RaggedTensor([[5, 4], [3, 2]], device="mps")
    before = ragged.values * 1
    ragged.sort_()
    assert before.tolist() == [5, 4, 3, 2]
    assert ragged.tolist() == [[4, 5], [2, 3]]


# Functions with a OneGate, which first make sure that the GPU has no work on the FSA.
@pytest.mark.parametrize("name", ["top_sort", "connect", "arc_sort", "remove_epsilon", "union"])
def test_a_function_waits_for_the_arcs_of_the_gpu(name):
    def fsa(device):
        fsas = [k2.linear_fsa([1, 2, 3]), k2.linear_fsa([2, 1])]
        fsas = k2.create_fsa_vec(fsas).to(device)
        fsas.scores = torch.zeros(7, device=device)
        return fsas

    found = fsa("mps")
    for _ in range(20):
        found.scores.add_(1)
    expected = fsa("cpu")
    expected.scores += 20
    call = getattr(k2, name)
    assert call(found).scores.tolist() == call(expected).scores.tolist()


def test_a_wait_of_a_function_does_not_count_for_the_next():
    ragged = k2.RaggedTensor([[1, 2], [3]], device="mps")
    values = ragged.values
    assert ragged.shape.tot_sizes() == (2, 3)
    values.add_(1)
    assert ragged.tolist() == [[2, 3], [4]]


def test_a_function_waits_again_after_its_own_kernels(metal):
    variables = calls.variables()
    found = k2.shortest_path(variables["fsas"], use_double_scores=True)
    expected = k2.shortest_path(variables["fsas"].to("cpu"), use_double_scores=True)
    assert found.labels.tolist() == expected.labels.tolist()


def _check_memory(seed, rounds):
    """Asserts that lists on mps keep their values, while their memory is freed and used again."""
    random = torch.Generator().manual_seed(seed)
    for _ in range(rounds):
        sizes = torch.randint(0, 30, (5,), generator=random).tolist()
        lists = [torch.randint(1, 9, (n,), generator=random).tolist() for n in sizes]
        ragged = k2.RaggedTensor(lists, dtype=torch.int32, device="mps")
        tripled, row = ragged.values * 3, ragged[1] * 2
        del ragged
        graph = k2.ctc_graph(lists, device="mps")
        other = k2.RaggedTensor([[7] * n for n in sizes], dtype=torch.int32, device="mps")
        assert tripled.tolist() == [3 * x for x_s in lists for x in x_s]
        assert row.tolist() == [2 * x for x in lists[1]]
        assert other.tolist() == [[7] * n for n in sizes]
        assert graph.aux_labels.tolist() == k2.ctc_graph(lists).aux_labels.tolist()


def test_threads_do_not_get_the_memory_of_each_other(rounds):
    run_in_threads(*(lambda seed=seed: _check_memory(seed, rounds) for seed in range(3)))


def test_memory_freed_during_a_wait_of_another_thread_is_not_idle_after_this_wait(rounds):
    stop = threading.Event()

    def wait():
        while not stop.is_set():
            k2.mps.synchronize()

    def work():
        try:
            for i in range(rounds):
                found = []
                for j in range(20):
                    ragged = k2.RaggedTensor([[i + j] * 60], device="mps")
                    found.append(ragged.values * 2)
                    del ragged
                assert [x[0].item() for x in found] == [2 * (i + j) for j in range(20)]
        finally:
            stop.set()

    run_in_threads(wait, work)


def test_a_function_of_another_thread_does_not_spare_a_wait(rounds):
    stop = threading.Event()

    def connect():
        fsas = k2.create_fsa_vec([k2.linear_fsa([1, 2, 3])] * 20).to("mps")
        while not stop.is_set():
            fsas.scores.add_(0)
            k2.connect(fsas)

    def read():
        try:
            ragged = k2.RaggedTensor([[1, 2], [3]], device="mps")
            for i in range(rounds):
                ragged.values.fill_(i)
                assert ragged.tolist() == [[i, i], [i]]
                ragged.values.fill_(-i)
                assert ragged.tolist() == [[-i, -i], [-i]]
        finally:
            stop.set()

    run_in_threads(connect, connect, read)


@pytest.mark.skipif(
    not hasattr(torch.mps, "Stream"), reason=f"torch {torch.__version__} has one stream"
)
def test_memory_that_two_streams_read_is_idle_after_both():
    stream = torch.mps.Stream()
    found = []
    for i in range(100):
        ragged = k2.RaggedTensor([[i] * 60], device="mps")
        with torch.mps.stream(stream):
            found.append(ragged.values * 2)
        del ragged
        if i % 10 == 0:
            k2.mps.synchronize()
    assert [x[0].item() for x in found] == [2 * i for i in range(100)]


LISTS = [[1, 2, 3], [4, 5]]
NEW_GRAPHS = {
    "made on mps": lambda: k2.ctc_graph(LISTS, device="mps"),
    "moved to mps": lambda: k2.ctc_graph(LISTS).to("mps"),
}


@pytest.mark.parametrize("name", NEW_GRAPHS)
def test_a_ctc_step_with_a_new_graph_needs_no_wait(name, metal):
    leaf = torch.randn(2, 30, 10, device="mps", requires_grad=True)

    def step():
        dense = k2.DenseFsaVec(leaf.log_softmax(-1), SEGMENTS)
        k2.ctc_loss(NEW_GRAPHS[name](), dense).backward()

    assert _drains(step) == 0


def test_steps_with_new_graphs_seldom_wait(metal):
    leaf = torch.randn(2, 30, 10, device="mps", requires_grad=True)

    def step():
        graph = k2.ctc_graph([[1, 2, 3], [4, 5]], device="mps")
        loss = k2.ctc_loss(graph, k2.DenseFsaVec(leaf.log_softmax(-1), SEGMENTS))
        loss.backward()

    for _ in range(200):
        step()
    with k2.mps.counters() as counted:
        for _ in range(200):
            step()
    # k2 keeps 1024 small blocks, and a step frees fewer than 40 that the GPU may use.
    assert counted.drains <= 200 * 40 / 1024
    assert counted.torch_waits == 0


def test_k2_keeps_little_memory():
    k2.mps.synchronize()
    gc.collect()
    before = torch.mps.current_allocated_memory()
    for size in (10, 100, 1000, 10_000, 100_000, 1_000_000):
        count = 200 if size <= 100_000 else 9
        kept = [k2.RaggedTensor([[1] * size], device="mps") for _ in range(count)]
        del kept
        # A tensor of each ragged tensor, which nothing waits for.
        for _ in range(count):
            k2.RaggedTensor([[1] * size], device="mps").values.add_(1)
    k2.mps.synchronize()
    gc.collect()
    # csrc/mps/host_memory.h says how much k2 keeps.
    assert torch.mps.current_allocated_memory() - before <= 96 << 20


def _with_attributes():
    fsa = k2.ctc_graph([[1, 2], [4, 4, 3]])
    fsa.weights = torch.arange(float(fsa.num_arcs))
    fsa.lists = k2.RaggedTensor([[i] for i in range(fsa.num_arcs)])
    return fsa


GIVES_NO_DRAIN = {
    "ctc_graph": lambda: k2.ctc_graph([[1, 2], [4, 4, 3]], device="mps"),
    "ctc_graph of a ragged tensor": lambda: k2.ctc_graph(
        k2.RaggedTensor([[1, 2], [4, 4, 3]], device="mps")
    ),
    "levenshtein_graph": lambda: k2.levenshtein_graph([[1, 2], [4]], device="mps"),
    "linear_fsa": lambda: k2.linear_fsa([1, 2], device="mps"),
    "linear_fsa of lists": lambda: k2.linear_fsa([[1, 2], [4]], device="mps"),
    "ctc_topo": lambda: k2.ctc_topo(5, device="mps"),
    "trivial_graph": lambda: k2.trivial_graph(5, device="mps"),
    "a ragged tensor, and back": lambda: k2.RaggedTensor([[1, 2], [3]], device="mps").tolist(),
    "a shape": lambda: k2.RaggedTensor([[1, 2], [3]]).shape.to("mps").row_ids(1),
    "a shape, and back": lambda: k2.RaggedTensor([[1, 2], [3]]).shape.to("mps").to("cpu"),
    "an element": lambda: k2.RaggedTensor([[1, 2], [3]], device="mps")[1],
    "a row of lists": lambda: k2.RaggedTensor([[[1, 2], [3]], [[4]]], device="mps")[1],
    "sizes": lambda: k2.RaggedTensor([[1, 2], [3]], device="mps").tot_size(1),
    "a graph": lambda: k2.Fsa.from_str("0 1 3 0.1\n1 2 -1 0.2\n2").to("mps"),
    "a graph with attributes": lambda: _with_attributes().to("mps"),
}


@pytest.mark.parametrize("name", GIVES_NO_DRAIN)
def test_what_the_host_makes_needs_no_wait(name):
    assert _drains(GIVES_NO_DRAIN[name]) == 0


def test_a_sort_makes_no_tensor_for_which_the_host_must_wait():
    ragged = k2.RaggedTensor([[2, 1], [3]], device="mps")
    ragged.sort_()
    assert _drains(ragged.tolist) == 0
    assert _drains(lambda: k2.ctc_graph(ragged)) == 0


def test_a_frame_of_a_beam_search_waits_once():
    def frame():
        row_splits = 3 * torch.arange(5, dtype=torch.int32, device="mps")
        shape = k2.ragged.create_ragged_shape2(row_splits=row_splits, cached_tot_size=12)
        scores = k2.RaggedTensor(shape, torch.ones(12, device="mps"))
        for i in range(4):
            scores[i].topk(2)

    assert _drains(frame) == 1


def test_rnnt_decoding_waits_once_a_frame():
    config = k2.RnntDecodingConfig(9, 2, 3.0, 3, 3)
    graph = k2.trivial_graph(8, device="mps")
    streams = k2.RnntDecodingStreams([k2.RnntDecodingStream(graph) for _ in range(2)], config)

    def frame():
        _, contexts = streams.get_contexts()
        streams.advance(torch.randn(contexts.shape[0], 9, device="mps").log_softmax(-1))

    for _ in range(9):
        frame()  # fills k2's memory for the host, and reaches the limit of contexts
    with k2.mps.counters() as counted:
        frame()
    assert (counted.drains, counted.gates) == (1, 2)


def test_a_graph_moves_with_its_attributes():
    fsa = _with_attributes()
    moved = fsa.to("mps")
    assert moved.scores.tolist() == fsa.scores.tolist()
    for name in ("aux_labels", "weights", "lists"):
        assert getattr(moved, name).device.type == "mps"
        assert getattr(moved, name).tolist() == getattr(fsa, name).tolist()
