"""On mps, k2_mac.gpu has working versions of the torch.cuda functions that recipes use."""

import importlib
import inspect

import pytest
import torch

from k2_mac import gpu, names, pick_device
from k2_mps_tests.parity.helpers import MPS, python

MEGABYTE = 1 << 20


def test_the_device_is_that_of_its_tensors():
    assert pick_device() == MPS == torch.zeros(1, device=pick_device()).device
    assert gpu.is_available() and gpu.device_type() == "mps"
    # On the second of several Macs, a recipe asks for index 1.
    assert pick_device(1) == MPS


def test_the_widest_type_of_the_device():
    assert torch.zeros(1, dtype=gpu.double(), device=MPS).dtype == torch.float32


def test_without_a_gpu_the_cpu_computes(monkeypatch):
    monkeypatch.setattr(gpu, "_on_mps", lambda: False)
    assert pick_device(1) == torch.device("cpu")
    assert not gpu.is_available() and gpu.device_count() == 0 and gpu.device_type() == "cuda"
    assert gpu.double() == torch.float64
    gpu.synchronize()
    gpu.reset_peak_memory_stats()
    gpu.empty_cache()
    for amount in ("memory_allocated", "max_memory_allocated", "memory_reserved"):
        assert getattr(gpu, amount)() == 0


def test_with_cuda_the_device_has_the_index_of_the_rank(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(gpu, "_on_mps", lambda: False)
    assert gpu.is_available() and gpu.cuda_is_available()
    assert pick_device() == torch.device("cuda", 0) and pick_device(1) == torch.device("cuda", 1)
    assert gpu.dist_backend() == "nccl"


# {function: the arguments of a call}
CALLS = {
    **{name: (1,) for name in ("set_device", "device", "get_device_name", "synchronize")},
    **{name: (1,) for name in ("memory_allocated", "max_memory_allocated", "memory_reserved")},
    **{name: (1,) for name in ("max_memory_reserved", "reset_peak_memory_stats")},
    **{name: () for name in ("device_count", "current_device", "empty_cache")},
    **{name: (3,) for name in ("manual_seed", "manual_seed_all", "get_rng_state")},
    **{"is_bf16_supported": (False,), "set_rng_state": (3, 1), "set_rng_state_all": ([3],)},
    "get_rng_state_all": (),
}


@pytest.mark.parametrize("name", CALLS)
def test_with_cuda_torchs_function_gets_the_arguments(monkeypatch, name):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(gpu, "_on_mps", lambda: False)
    calls = []
    monkeypatch.setattr(torch.cuda, name, lambda *arguments: calls.append(arguments))
    getattr(gpu, name)(*CALLS[name])
    assert calls == [CALLS[name]]


@pytest.mark.parametrize("name", ["synchronize", "empty_cache"])
def test_on_mps_torchs_function_for_mps_runs(monkeypatch, name):
    calls = []
    monkeypatch.setattr(torch.mps, name, lambda: calls.append(name))
    getattr(gpu, name)()
    assert calls == [name]


@pytest.mark.parametrize("available", [True, False])
def test_the_import_warns_of_faults_if_there_is_a_gpu(available):
    program = (
        "import platform, torch;"
        " platform.mac_ver = lambda: ('27.0', ('', '', ''), 'arm64');"
        " torch.__version__ = '2.14.0';"
        f" torch.backends.mps.is_available = lambda: {available};"
        " import k2_mac.gpu"
    )
    result = python("-c", program)
    assert result.returncode == 0, result.stderr
    assert ("torch 2.14.0 on macOS 27.0" in result.stderr) == available


def test_the_modules_of_k2_mac_are_loaded_when_they_are_used():
    program = (
        "import sys, k2_mac;"
        " print('torch' in sys.modules, hasattr(k2_mac, 'run_'), 'torch' in sys.modules);"
        " print(k2_mac.distributed.__name__, k2_mac.gpu.__name__)"
    )
    lines = python("-c", program).stdout.splitlines()
    assert lines == ["False False False", "k2_mac.distributed k2_mac.gpu"]


@pytest.mark.parametrize("nccl, gloo", [(True, False), (False, True), (False, False)])
def test_gloo_takes_the_place_of_nccl(monkeypatch, nccl, gloo):
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: nccl)
    monkeypatch.setattr(torch.distributed, "is_gloo_available", lambda: gloo)
    assert gpu.is_nccl_available() == (nccl or gloo)
    monkeypatch.setattr(gpu, "_on_mps", lambda: False)
    assert gpu.is_nccl_available() == nccl


# GradScaler passes all of its arguments on.  torch.get_autocast_gpu_dtype is written in C.
SAME_ARGUMENTS = sorted(
    name
    for name in names.REPLACED
    if not name.endswith("GradScaler") and name != "torch.get_autocast_gpu_dtype"
)


@pytest.mark.parametrize("name", SAME_ARGUMENTS)
def test_a_function_has_the_arguments_of_torchs(name):
    def arguments(function):
        found = inspect.signature(function).parameters.values()
        return [(each.name, each.kind, each.default) for each in found]

    module, _, function = name.rpartition(".")
    torchs = getattr(importlib.import_module(module), function)
    assert arguments(getattr(gpu, names.REPLACED[name])) == arguments(torchs)


def test_memory():
    gpu.empty_cache()
    before = gpu.memory_allocated()
    gpu.reset_peak_memory_stats()
    tensor = torch.zeros(8 * MEGABYTE, dtype=torch.uint8, device=MPS)
    gpu.synchronize()
    assert gpu.memory_allocated() >= before + 8 * MEGABYTE
    assert gpu.memory_reserved() >= gpu.memory_allocated()
    del tensor
    assert gpu.memory_allocated() < before + 8 * MEGABYTE
    assert gpu.max_memory_allocated() >= before + 8 * MEGABYTE
    gpu.reset_peak_memory_stats()
    assert gpu.max_memory_allocated() < before + 8 * MEGABYTE


def test_memory_where_torch_keeps_no_peak(monkeypatch):
    def no_peak():
        raise NotImplementedError("not implemented for this allocator")

    for name in ("max_memory_allocated", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.accelerator, name, no_peak)
    gpu.reset_peak_memory_stats()
    assert gpu.max_memory_allocated() == torch.mps.driver_allocated_memory()


@pytest.mark.parametrize("options, expected", [({}, True), ({"cache_enabled": False}, False)])
def test_autocast_keeps_the_casts_of_weights(options, expected):
    with gpu.autocast(**options):
        assert torch.is_autocast_cache_enabled() is expected


class _Double(torch.autograd.Function):
    """Like icefall's autograd functions, uses the autocast state of forward() in backward()."""

    @staticmethod
    @gpu.custom_fwd
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.enabled = gpu.is_autocast_enabled()
        return 2 * x

    @staticmethod
    @gpu.custom_bwd
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        assert gpu.is_autocast_enabled() == ctx.enabled
        return (grad @ torch.eye(grad.shape[-1], device=grad.device)).to(x.dtype) * 2


def test_inputs_are_cast_as_asked():
    class Same(torch.autograd.Function):
        @staticmethod
        @gpu.custom_fwd(cast_inputs=torch.float32)
        def forward(ctx, x):
            return x.clone()

    with gpu.autocast():
        assert Same.apply(torch.ones(2, device=MPS, dtype=torch.float16)).dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_mixed_precision_learns(dtype):
    assert gpu.is_bf16_supported()
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)).to(MPS)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = gpu.GradScaler(enabled=dtype == torch.float16, init_scale=1024.0)
    assert isinstance(scaler, torch.amp.GradScaler)
    x = torch.randn(32, 8, device=MPS)
    y = x[:, :4].sin()
    losses = []
    for _ in range(20):
        with gpu.autocast(enabled=True, dtype=dtype):
            assert gpu.is_autocast_enabled() and gpu.get_autocast_dtype() == dtype
            out = _Double.apply(model(x))
            assert out.dtype == dtype
            with gpu.autocast(enabled=False):
                assert not gpu.is_autocast_enabled()
                loss = (out.float() - y).square().mean()
                assert (out.float() @ y.T).dtype == torch.float32
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    if scaler.is_enabled():
        assert scaler._scale.item() == 1024.0
        parameter = next(model.parameters())
        before = parameter.detach().clone()
        optimizer.zero_grad()
        scaler.scale(model(x).sum() * float("inf")).backward()
        scaler.step(optimizer)
        scaler.update()
        assert scaler._scale.item() == 512.0
        assert torch.equal(parameter, before)
