"""k2_mac.distributed: two processes train one model on mps, with gloo."""

import concurrent.futures
import datetime
import functools
import multiprocessing
import os
import socket
import sys

import k2
import pytest
import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from k2_mac import distributed
from k2_mps_tests.parity.helpers import MPS
from k2_mps_tests.running import ran

PROCESSES = 2


def start(store, rank):
    distributed.enable()
    distributed.enable()  # does nothing
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=PROCESSES)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A function that calls a function of this file in both processes, and returns both results."""
    store = tmp_path_factory.mktemp("store") / "store"
    context = multiprocessing.get_context("spawn")
    pools = [
        concurrent.futures.ProcessPoolExecutor(1, context, start, (store, rank))
        for rank in range(PROCESSES)
    ]

    def call(function, *arguments):
        futures = [pool.submit(function, *arguments) for pool in pools]
        return [future.result(timeout=120) for future in futures]

    yield call
    for pool in pools:
        pool.shutdown()


def late(values):
    """Returns a tensor on mps while the GPU still computes it."""
    ans = torch.tensor(values, dtype=torch.float32).to(MPS)
    for _ in range(10):
        ans = ans + 1
    return ans


def sums_of_late_tensors():
    ans = []
    for step in range(20):
        x = late([step, dist.get_rank()])
        dist.all_reduce(x)
        ans.append((x * 2).tolist())
    return ans


def test_a_collective_is_in_order_with_the_gpu(both):
    expected = [[2 * (2 * step + 20), 2 * (1 + 20)] for step in range(20)]
    assert both(sums_of_late_tensors) == [expected, expected]


def _own(device, count=4):
    return (torch.arange(count, dtype=torch.float32) + 10 * dist.get_rank() + 1).to(device)


def _empty(device, rows):
    return [torch.zeros(4, device=device) for _ in range(rows)]


def _all_reduce(device):
    x = _own(device)
    dist.all_reduce(x, dist.ReduceOp.MAX)
    return [x]


def _broadcast(device):
    x = _own(device)
    dist.broadcast(x, 1)
    return [x]


def _reduce(device):
    x = _own(device)
    dist.reduce(x, 1)
    return [x] if dist.get_rank() == 1 else []


def _all_gather(device):
    ans = _empty(device, PROCESSES)
    dist.all_gather(ans, _own(device))
    return ans


def _all_gather_into_tensor(device):
    ans = torch.zeros(PROCESSES * 4, device=device)
    dist.all_gather_into_tensor(ans, _own(device))
    return [ans]


def _gather(device):
    ans = _empty(device, PROCESSES) if dist.get_rank() == 0 else None
    dist.gather(_own(device), ans, 0)
    return ans or []


def _scatter(device):
    ans = torch.zeros(4, device=device)
    parts = [_own(device), -_own(device)] if dist.get_rank() == 0 else None
    dist.scatter(ans, parts, 0)
    return [ans]


def _scatter_from_the_cpu(device):
    ans = torch.zeros(4, device=device)
    parts = [_own("cpu"), -_own("cpu")] if dist.get_rank() == 0 else None
    dist.scatter(ans, parts, 0)
    return [ans]


def _reduce_scatter(device):
    ans = torch.zeros(4, device=device)
    dist.reduce_scatter(ans, [_own(device), -_own(device)])
    return [ans]


def _reduce_scatter_tensor(device):
    ans = torch.zeros(2, device=device)
    dist.reduce_scatter_tensor(ans, _own(device))
    return [ans]


def _all_to_all_single(device):
    ans = torch.zeros(4, device=device)
    dist.all_to_all_single(ans, _own(device))
    return [ans]


def _send_and_receive(device):
    ans = torch.zeros(4, device=device)
    other = 1 - dist.get_rank()
    if dist.get_rank() == 0:
        dist.send(_own(device), other)
        dist.recv(ans, other)
    else:
        dist.recv(ans)
        dist.send(_own(device), other)
    return [ans]


def _part(device):
    x = _own(device, count=8)
    dist.all_reduce(x[3:5])
    return [x]


def _no_elements(device):
    x = torch.zeros(0, 3, device=device)
    dist.all_reduce(x)
    return [x]


def _barrier(device):
    x = _own(device)
    dist.barrier()
    return [x]


def _objects(device):
    ans = [None] * PROCESSES
    dist.all_gather_object(ans, {"rank": dist.get_rank()})
    assert [result["rank"] for result in ans] == [0, 1]
    return [_own(device)]


def _in_a_new_group(device):
    x = _own(device)
    dist.all_reduce(x, group=dist.new_group([0, 1], backend="cpu:gloo,mps:gloo"))
    return [x]


COLLECTIVES = {
    function.__name__: function
    for function in (
        *(_all_reduce, _broadcast, _reduce, _all_gather, _all_gather_into_tensor, _gather),
        *(_scatter, _scatter_from_the_cpu, _reduce_scatter, _reduce_scatter_tensor),
        *(_all_to_all_single, _send_and_receive, _part, _no_elements, _barrier, _objects),
        _in_a_new_group,
    )
}


def on_both_devices(name):
    found = {}
    for device in (torch.device("cpu"), MPS):
        tensors = COLLECTIVES[name](device)
        assert all(tensor.device == device for tensor in tensors)
        found[device.type] = [tensor.tolist() for tensor in tensors]
    return found


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_collective_does_what_gloo_does_on_the_cpu(both, name):
    results = both(on_both_devices, name)
    assert any(result["cpu"] for result in results)
    for result in results:
        assert result["mps"] == result["cpu"]


def sum_of(dtype):
    x = torch.tensor([1, 2], device=MPS).to(dtype)
    dist.all_reduce(x)
    assert x.dtype == dtype
    return x.tolist()


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8]
)
def test_all_reduce_of_each_type(both, dtype):
    assert both(sum_of, dtype) == [[2, 4]] * 2


def work_of_a_collective():
    x = torch.zeros(1000, device=MPS)
    torch.mps.synchronize()
    with k2.mps.counters() as counted:
        dist.all_reduce(x)
    return counted


def test_a_collective_copies_nothing(both):
    for counted in both(work_of_a_collective):
        # The one operator is the collective.  A copy by torch would count as another operator.
        assert counted.operators == 1
        assert counted.dispatches == 0
        assert counted.bytes_to_cpu == counted.bytes_to_mps == counted.bytes_within_mps == 0
        assert counted.gates == 1


def result_of_an_asynchronous_collective():
    x = _own(MPS)
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    future = work.get_future().value()
    same = [tensor.data_ptr() == x.data_ptr() for tensor in (*work.result(), *future)]
    return same, [tensor.device for tensor in (*work.result(), *future)]


def test_the_result_of_a_work_is_on_mps(both):
    assert both(result_of_an_asynchronous_collective) == [([True] * 2, [MPS] * 2)] * 2


class Model(nn.Module):
    """A model with a layer that only some batches use."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 32)
        self.second = nn.Linear(32, 8)
        self.rare = nn.Linear(8, 8)

    def forward(self, x, use_all):
        x = self.second(self.first(x).tanh())
        return self.rare(x) if use_all else x


def _loss(model, rank, use_all):
    generator = torch.Generator().manual_seed(rank)
    x = torch.randn(2, 30, 16, generator=generator).to(MPS)
    graph = k2.ctc_graph([[1, 2, 3], [4, 5]], device=MPS)
    segments = torch.tensor([[0, 0, 30], [1, 0, 30]], dtype=torch.int32)
    log_probs = model(x, use_all).log_softmax(-1)
    return k2.ctc_loss(graph, k2.DenseFsaVec(log_probs, segments))


def _gradients(model):
    return [None if p.grad is None else p.grad.tolist() for p in model.parameters()]


def _new_model():
    torch.manual_seed(1)
    return Model().to(MPS)


def averaged_gradients(settings, use_all, hook=None):
    """Returns the gradients that DDP has averaged, and the same averages computed without DDP.

    Args:
      settings: further arguments of DistributedDataParallel.
      use_all: whether the model uses its layer `rare`.
      hook: for register_comm_hook(); None: no hook.
    """
    model = _new_model()
    if dist.get_rank() == 1:
        for parameter in model.parameters():
            nn.init.zeros_(parameter)  # DDP replaces these zeros by the weights of rank 0
    parallel = DistributedDataParallel(model, device_ids=[0], **settings)
    if hook:
        parallel.register_comm_hook(None, hook)
    for _ in range(3):
        parallel.zero_grad()
        _loss(parallel, dist.get_rank(), use_all).backward()
    alone = _new_model()
    for rank in range(PROCESSES):
        (_loss(alone, rank, use_all) / PROCESSES).backward()
    return _gradients(model), _gradients(alone)


def _are_close(found, expected, tolerance):
    for gradient, other in zip(found, expected, strict=True):
        if other is None:
            assert gradient is None
        else:
            other = torch.tensor(other)
            error = (torch.tensor(gradient) - other).abs().max()
            assert error <= tolerance * other.abs().max()


# A gradient is a sum over 120 frames.  DDP adds the frames in another order.  So up to 120
# roundings differ.
TOLERANCE = 120 * torch.finfo(torch.float32).eps


@pytest.mark.parametrize(
    "settings",
    [{}, {"gradient_as_bucket_view": True}, {"static_graph": True}, {"bucket_cap_mb": 1e-3}],
    ids=lambda settings: next(iter(settings), "default"),
)
def test_the_gradients_are_averaged(both, settings):
    for found, expected in both(averaged_gradients, settings, True):
        _are_close(found, expected, TOLERANCE)


@pytest.mark.parametrize("use_all", [True, False])
def test_unused_parameters_are_found(both, use_all):
    for found, expected in both(averaged_gradients, {"find_unused_parameters": True}, use_all):
        _are_close(found, expected, TOLERANCE)


def test_a_hook_compresses_the_gradients(both):
    hook = default_hooks.fp16_compress_hook
    for found, expected in both(averaged_gradients, {}, True, hook):
        # Two gradients and their sum are rounded to float16.
        _are_close(found, expected, 3 * torch.finfo(torch.float16).eps)


def _lonely(collective):
    """Calls a collective in the first process only; returns the text of the error.

    In the second process, returns None.
    """
    group = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=2))
    if dist.get_rank() == 1:
        return None
    with pytest.raises(RuntimeError) as raised:
        collective(group)
    return str(raised.value)


def a_lonely_all_reduce():
    return _lonely(lambda group: dist.all_reduce(torch.zeros(3, device=MPS), group=group))


def a_lonely_broadcast():
    def receive(group):
        dist.broadcast(torch.zeros(3, device=MPS), 1, group=group, async_op=True).wait()

    return _lonely(receive)


def a_lonely_asynchronous_all_reduce():
    def reduce(group):
        work = dist.all_reduce(torch.zeros(3, device=MPS), group=group, async_op=True)
        work.wait()
        assert not work.is_success()
        work.get_future().value()

    return _lonely(reduce)


@pytest.mark.parametrize(
    "collective", [a_lonely_all_reduce, a_lonely_broadcast, a_lonely_asynchronous_all_reduce]
)
def test_a_collective_without_the_other_process_times_out(both, collective):
    error, _ = both(collective)
    assert "Timed out" in error


def test_recipes_start_their_processes_by_themselves_or_by_torchrun(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    variables = {**os.environ, "MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())}
    python = functools.partial(ran, sys.executable, env=variables)
    alone = python(program)
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", PROCESSES)
    launched = python(*torchrun, program)
    for result in (alone, launched):
        assert sorted(result.stdout.split()) == ["0:3.0", "1:3.0"], result.stderr


PROGRAM = f"""
import torch
import torch.distributed as dist
from k2_mac import gpu


def run(rank, world_size):
    dist.init_process_group(gpu.dist_backend(), rank=rank, world_size=world_size)
    gpu.set_device(rank)
    x = torch.full((1,), rank + 1.0, device=gpu.pick_device(rank))
    dist.all_reduce(x)
    print(f"{{rank}}:{{x.item()}}\\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    gpu.spawn(run, args=({PROCESSES},), nprocs={PROCESSES}, join=True)
"""


def free_port():
    """Returns the number of a TCP port that no program uses."""
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]
