"""Several threads use k2 on mps at once, or one uses k2 while another uses torch."""

import sys
import threading
import time

import k2
import pytest
import torch
from k2.mps.graph_index import GraphIndex

from k2_mps_tests.parity.helpers import MPS, assert_same, python, random_fsa_vec
from k2_mps_tests.parity.in_threads import loss_and_grad, pruned, run_in_threads


def test_losses_in_threads_are_those_of_one_thread(rounds):
    seeds = range(4)
    expected = {seed: loss_and_grad(seed) for seed in seeds}

    def work(seed):
        for _ in range(rounds):
            loss, grad = loss_and_grad(seed)
            assert loss == expected[seed][0]
            assert torch.equal(grad, expected[seed][1])

    run_in_threads(*[lambda seed=seed: work(seed) for seed in seeds])


@pytest.mark.skipif(
    sys.platform == "darwin", reason="a real device does not count autoreleased objects"
)
def test_no_object_waits_for_an_autorelease_pool(metal):
    """Python's threads have no pool, so nothing would free an autoreleased object."""
    from mps_emulator import counters

    with counters() as counted:
        loss_and_grad(0)
        pruned(MPS)
        torch.mps.synchronize()
    assert counted.autorelease_leaks == 0


@pytest.fixture
def restless():
    """Makes Python switch threads as often as possible."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def test_threads_that_ask_a_new_shape_for_its_row_ids(rounds, restless):
    """A shape computes its row ids when a thread first asks for them.

    Other threads ask while this thread waits for the GPU.
    """
    rows = 100000
    splits = torch.arange(0, 2 * rows + 1, 2, dtype=torch.int32, device="mps")
    expected = torch.arange(rows, dtype=torch.int32).repeat_interleave(2)
    for _ in range(rounds // 20):
        shape = k2.ragged.create_ragged_shape2(row_splits=splits, cached_tot_size=2 * rows)
        start = threading.Barrier(3)

        def work():
            start.wait()
            torch.ones(rows, device="mps") + 1  # work for the GPU; row_ids() waits for this work
            assert_same(shape.row_ids(1), expected)

        run_in_threads(*[work] * 3)


def test_threads_that_ask_a_shared_index_for_its_labels(restless, metal):
    graph = k2.ctc_graph([[1, 2], [5]], device="mps")
    for _ in range(100):
        index = GraphIndex(graph, by_host=False)
        start = threading.Barrier(3)

        def work(index=index, start=start):
            start.wait()
            while index.labels() is None:
                k2.mps.synchronize()
            assert index.labels() == (-1, 5)

        run_in_threads(*[work] * 3)


def test_k2_beside_torch(rounds):
    """One thread keeps the device busy while another calls k2."""
    done = threading.Event()
    fsas = random_fsa_vec()
    expected = fsas.get_tot_scores(use_double_scores=True, log_semiring=True)

    def torch_work():
        x = torch.ones(1000, device="mps")
        count = 0
        while not done.is_set():
            x = x * 1.0 + 1.0
            count += 1
            if count % 50 == 0:
                assert (x == count + 1).all()

    def k2_work():
        try:
            for _ in range(rounds // 10):
                scores = fsas.to("mps").get_tot_scores(use_double_scores=True, log_semiring=True)
                assert_same(scores, expected.float())
        finally:
            done.set()

    run_in_threads(torch_work, k2_work)


def test_intersect_dense_pruned_waits_from_its_own_thread(rounds):
    """k2's own thread reads scores that torch may still be computing."""
    expected = pruned("cpu")

    def work():
        for _ in range(max(rounds // 100, 1)):
            assert_same(pruned(MPS), expected)

    run_in_threads(*[work] * 3)


def test_gradients_come_from_the_thread_of_autograd():
    """backward() runs k2 in a thread that Python did not make."""
    idents = []
    on_cpu = random_fsa_vec()
    fsas = on_cpu.to("mps").requires_grad_(True)
    scores = fsas.get_tot_scores(use_double_scores=False, log_semiring=True)
    scores.register_hook(lambda grad: idents.append(threading.get_ident()))
    scores.sum().backward()
    assert idents and idents[0] != threading.get_ident()
    on_cpu.requires_grad_(True)
    on_cpu.get_tot_scores(use_double_scores=False, log_semiring=True).sum().backward()
    assert_same(fsas.grad, on_cpu.grad)


def _busy():
    """Encodes work for some tenths of a second, without a wait."""
    px = torch.randn(2, 200, 401, device="mps")
    py = torch.randn(2, 201, 400, device="mps")
    torch.mps.synchronize()
    return [k2.mutual_information_recursion(px, py) for _ in range(12)]


def _ragged():
    """Returns a ragged tensor of values on which the GPU may work."""
    return k2.RaggedTensor(k2.RaggedShape("[[x]]").to("mps"), torch.zeros(1, device="mps"))


# Functions that wait for work of the GPU on their inputs.
WAITING = {
    "dense_fsa_vec": lambda: k2.DenseFsaVec(
        torch.zeros(1, 3, 4, device="mps"), torch.tensor([[0, 0, 3]], dtype=torch.int32)
    ),
    "tolist": lambda: _ragged().tolist(),
    "to_cpu": lambda: _ragged().to("cpu"),
    "sort": lambda: _ragged().sort_(),
}


@pytest.mark.parametrize("name", WAITING)
def test_python_runs_while_k2_waits(name):
    """Another thread runs during a long wait."""
    stop = threading.Event()
    times = []

    def watch():
        while not stop.is_set():
            times.append(time.perf_counter())
            time.sleep(0.001)

    busy = _busy()
    thread = threading.Thread(target=watch)
    thread.start()
    begin = time.perf_counter()
    WAITING[name]()
    end = time.perf_counter()
    stop.set()
    thread.join()
    del busy
    between = [t for t in times if begin < t < end]
    # watch() notes a time about once a millisecond if its thread can run.  If k2 held the GIL
    # during a wait, watch() would note no time, or one time at each end of the wait.
    assert end - begin > 0.02, "the device had nothing to do"
    assert len(between) >= 5


OUT_OF_MEMORY = """
import sys
import k2, torch
torch.manual_seed(1)
log_probs = torch.randn(2, 90, 6, device='mps').log_softmax(-1).requires_grad_(True)
segments = torch.tensor([[0, 0, 90], [1, 0, 65]], dtype=torch.int32)
topo = k2.ctc_topo(5, device='mps')
graphs = k2.ctc_graph([[1, 2, 3], [4, 5]], device='mps')
def pruned():
    dense = k2.DenseFsaVec(log_probs, segments)
    return k2.intersect_dense_pruned(topo, dense, 8, 5, 5, 50).scores.sum()
def lattice():
    lattices = k2.intersect_dense(graphs, k2.DenseFsaVec(log_probs, segments), 8)
    return lattices.get_tot_scores(True, True).sum()
def ctc():
    return k2.ctc_loss(graphs, k2.DenseFsaVec(log_probs, segments))
def transducer():
    px = log_probs[:, :30, :].reshape(2, 12, 15)
    return k2.mutual_information_recursion(px, log_probs[:, :13, :1].expand(2, 13, 14)).sum()
def run():
    log_probs.grad = None
    loss = globals()[sys.argv[1]]()
    loss.backward()
    return loss.item(), log_probs.grad.cpu()
expected = run()
torch.mps.empty_cache()
failed = 0
maximum = torch.mps.recommended_max_memory()
for kib in range(0, 600, 6):
    limit = torch.mps.driver_allocated_memory() + kib * 1024
    torch.mps.set_per_process_memory_fraction(limit / maximum)
    try:
        run()
    except RuntimeError as e:
        assert 'memory' in str(e) or 'bad things' in str(e), e
        failed += 1
    torch.mps.set_per_process_memory_fraction(0.0)
    torch.mps.empty_cache()
assert all(torch.equal(torch.as_tensor(x), torch.as_tensor(y)) for x, y in zip(run(), expected))
print('failed', failed)
"""


@pytest.mark.skipif(
    sys.platform == "darwin", reason="only the emulated device limits memory exactly"
)
@pytest.mark.parametrize("operation", ("pruned", "lattice", "ctc", "transducer"))
def test_running_out_of_memory_is_an_exception(metal, operation):
    """A failed allocation raises an exception, even in k2's own thread.  Later calls work."""
    result = python("-c", OUT_OF_MEMORY, operation)
    assert result.returncode == 0, result.stderr[-2000:]
    assert int(result.stdout.split()[-1]) > 1
