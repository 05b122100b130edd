"""k2 works with torch.mps.Stream, which torch has from version 2.15 on.

A wait of k2 covers the work of all streams and threads, as torch.mps.synchronize() does.  A kernel
of k2 goes to the current stream of the thread that launches the kernel.  During backward(), the
current stream is the stream of the forward pass.  k2's own threads have the default stream.
"""

import math
import threading

import k2
import pytest
import torch

from k2_mps_tests.parity.helpers import assert_same, random_fsa_vec
from k2_mps_tests.parity.in_threads import loss_and_grad, pruned, run_in_threads

pytestmark = pytest.mark.skipif(
    not hasattr(torch.mps, "Stream"), reason=f"torch {torch.__version__} has one stream"
)


@pytest.fixture
def stream():
    return torch.mps.Stream()


def _on(stream, function, *arguments):
    with torch.mps.stream(stream):
        return function(*arguments)


def test_a_loss_on_a_stream(stream, placement):
    expected = loss_and_grad(1)
    found = _on(stream, loss_and_grad, 1)
    assert found[0] == expected[0]
    assert torch.equal(found[1], expected[1])


def test_the_backward_pass_runs_on_the_stream_of_the_forward_pass(stream, metal):
    seen = []
    on_cpu = random_fsa_vec()
    on_cpu.requires_grad_(True)
    with torch.mps.stream(stream):
        fsas = on_cpu.to("mps").detach().requires_grad_(True)
        scores = fsas.get_tot_scores(use_double_scores=False, log_semiring=True)
    scores.register_hook(lambda grad: seen.append(threading.get_ident()))
    fsas.scores.register_hook(lambda grad: seen.append(torch.mps.current_stream().stream_id))
    scores.sum().backward()
    assert seen[0] != threading.get_ident()
    on_cpu.get_tot_scores(use_double_scores=False, log_semiring=True).sum().backward()
    assert_same(fsas.grad, on_cpu.grad, atol=1e-6, rtol=1e-5)


def _work_on(stream):
    """Returns a tensor whose values a kernel on the stream has not written yet."""
    px = torch.zeros(1, 1, 2, device="mps")
    py = torch.full((1, 2, 1), 3.0, device="mps")
    torch.mps.synchronize()
    return _on(stream, k2.mutual_information_recursion, px, py)


@pytest.mark.parametrize("reader", ["default stream", "other stream", "other thread"])
def test_a_wait_covers_the_work_of_other_streams(stream, reader, metal):
    index = torch.zeros(2, dtype=torch.int32, device="mps")
    values = _work_on(stream)
    found = []

    def read():
        found.append(k2.index_select(values, index))  # on the host

    if reader == "other stream":
        _on(torch.mps.Stream(), read)
    elif reader == "other thread":
        run_in_threads(read)
    else:
        read()
    # There are two paths with the score 3.
    assert found[0].tolist() == pytest.approx([3 + math.log(2)] * 2)


def test_a_thread_of_k2_waits_for_the_stream_of_the_caller(stream):
    """intersect_dense_pruned prunes in a thread whose current stream is the default stream."""
    assert_same(_on(stream, pruned, "mps"), pruned("cpu"))


def test_losses_run_beside_a_model(rounds):
    """Two threads have their own streams, and two threads share the default stream."""
    expected = [loss_and_grad(seed) for seed in range(2)]
    weight = torch.randn(64, 64)
    product = weight @ weight

    def losses():
        for i in range(max(rounds // 50, 1)):
            found = loss_and_grad(i % 2)
            assert found[0] == expected[i % 2][0]
            assert torch.equal(found[1], expected[i % 2][1])

    def model():
        for _ in range(max(rounds // 20, 1)):
            on_mps = weight.to("mps")
            assert_same(on_mps @ on_mps, product, atol=1e-4, rtol=1e-4)

    streams = [torch.mps.Stream(), torch.mps.Stream()]
    run_in_threads(losses, model, lambda: _on(streams[0], losses), lambda: _on(streams[1], model))
