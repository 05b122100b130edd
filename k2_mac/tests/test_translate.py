"""Values that name CUDA become values that name mps, even where a program passes them to torch."""

import inspect
import pickle
import types

import k2
import numpy
import pytest
import torch

from k2_mac import gpu, patched, translate
from k2_mps_tests.parity.helpers import MPS

PATCHED = (
    *((torch.Tensor, name) for name in ("to", "cuda", "double")),
    *((module, "load") for module in (torch, torch.serialization)),
    *((torch.distributed, name) for name in ("init_process_group", "new_group")),
    *((torch.distributed.distributed_c10d, name) for name in ("init_process_group", "new_group")),
    (torch.nn.parallel.DistributedDataParallel, "__init__"),
    (torch.nn.functional, "ctc_loss"),
    *((kind, "to") for kind in (k2.Fsa, k2.DenseFsaVec, k2.RaggedTensor)),
    *((k2, name) for name in ("ctc_graph", "ctc_topo", "levenshtein_graph", "linear_fsa")),
    *((k2, name) for name in ("trivial_graph", "with_cuda")),
    (k2.RaggedTensor, "__init__"),
    (k2.ragged, "create_ragged_tensor"),
)


@pytest.fixture
def installed(monkeypatch):
    """Replaces torch's and k2's functions during a test."""
    for owner, name in PATCHED:
        monkeypatch.setattr(owner, name, getattr(owner, name))
    patched.install()
    patched.install_in_k2()


@pytest.fixture
def without_mps(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(translate, "_found", False)


MAPPED = {
    "cuda": "mps",
    "cuda:1": "mps:0",
    "mps:1": "mps:0",
    "mps": "mps",
    "cpu": "cpu",
    "cudart": "cudart",
    torch.device("cuda", 1): MPS,
    torch.device("cpu"): torch.device("cpu"),
    torch.device("cpu", 1): torch.device("cpu", 1),
    3: 3,
    None: None,
}


@pytest.mark.parametrize("value", MAPPED)
def test_names_of_devices(value):
    assert translate.map_device(value) == MAPPED[value]
    assert translate.map_device({"cuda:0": value}) == {"cuda:0": MAPPED[value]}


def test_without_mps_all_values_stay(without_mps):
    for value in MAPPED:
        assert translate.map_device(value) == value
    assert translate.torch_device("cuda", 1) == torch.device("cuda", 1)
    assert translate.mentions_gpu("cuda:0") and not translate.mentions_gpu("mps:0")
    assert translate.features_device("cuda") == "cuda"
    x = torch.ones(1)
    assert translate.arguments_of_to(x, (1, torch.float16), {}) == (x, (1, torch.float16), {})


def test_cuda_comes_before_mps(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(translate, "_found", False)
    assert not translate.on_mps()


def test_each_gpu_is_the_one_of_the_mac():
    for arguments in (("cuda",), ("cuda", 1), ("cuda:1",), ("mps", 1), (torch.device("cuda"),)):
        assert translate.torch_device(*arguments) == MPS
    assert translate.torch_device(type="cuda", index=2) == MPS
    # A program may give each process the index of its rank, whatever the type of the device is.
    for arguments in (("cpu",), ("cpu", 1), ("meta", 1)):
        assert translate.torch_device(*arguments) == torch.device(*arguments)


def test_a_compiled_function_names_a_device_of_cuda():
    def moved(x):
        return x.to(translate.map_device("cuda:0"))

    assert translate.on_mps()  # k2_mac has asked for the device before a program compiles.
    compiled = torch.compile(moved, fullgraph=True, backend="eager")
    assert compiled(torch.ones(1)).device == MPS


def test_arguments_that_only_the_run_shows():
    for args, kwargs in ((("cuda",), {}), ((), {"device_type": "cuda", "enabled": True})):
        with translate.translated(torch.autocast, *args, **kwargs):
            assert gpu.is_autocast_enabled()
    assert gpu.GradScaler(device="cuda", init_scale=2.0).is_enabled()


def test_questions_for_a_gpu():
    x = torch.zeros(1, device=MPS)
    assert translate.is_gpu(x) and not translate.is_gpu(x.cpu())
    # This class has no attribute `is_mps`.
    assert not translate.is_gpu(torch.nn.utils.rnn.pack_sequence([x.cpu()]))
    assert translate.is_gpu(types.SimpleNamespace(is_cuda=True))
    assert translate.mentions_gpu(str(x.device)) and translate.mentions_gpu(["cuda", "cpu"])
    assert not translate.mentions_gpu("cpu")


def test_a_tensor_of_float64_is_made_on_the_cpu_only():
    make = translate.without_float64
    for device, dtype in (("cpu", torch.float64), (MPS, torch.float32), ("mps", torch.float32)):
        x = make(torch.zeros, 2, dtype=torch.float64, device=device)
        assert x.dtype == dtype and x.device.type == torch.device(device).type
        assert make(torch.zeros_like, x, dtype=torch.double).dtype == dtype
        assert make(x.sum, dtype=torch.double).dtype == dtype
        assert make(torch.tensor, numpy.ones(2), device=device).dtype == dtype
    assert make(torch.zeros, 2, dtype=torch.int64, device=MPS).dtype == torch.int64
    assert make(torch.zeros, size=(2,), device=MPS).dtype == torch.float32
    array = numpy.ones(2)
    assert make(torch.tensor, array, dtype=torch.int64, device=MPS).dtype == torch.int64


def test_a_tensor_of_float64_on_the_default_device():
    make = translate.without_float64
    with torch.device("mps"):
        assert make(torch.zeros, 2, dtype=torch.float64).dtype == torch.float32
    assert make(torch.zeros, 2, dtype=torch.float64).dtype == torch.float64


def test_tensors_and_modules_move_to_the_gpu_by_any_name(installed):
    x = torch.ones(2)
    for device in ("cuda", "cuda:3", torch.device("cuda"), 1, MPS, torch.zeros(1, device=MPS)):
        assert x.to(device).device == MPS
    assert x.to(device="cuda:1", dtype=torch.float16, non_blocking=True).dtype == torch.float16
    assert x.to(1, torch.float16).dtype == torch.float16
    assert x.cuda().device == x.cuda(1, non_blocking=True).device == MPS
    assert x.to("cpu") is x and x.to(torch.float64).dtype == torch.float64
    for module in (torch.nn.Linear(2, 2).cuda(), torch.nn.Linear(2, 2).to("cuda:1")):
        assert module.weight.device == MPS
        assert module.double()(x.double().cuda()).dtype == torch.float32
    packed = torch.nn.utils.rnn.pack_sequence([x])
    assert packed.cuda().data.device == packed.to("cuda").data.device == MPS


def test_float64_and_complex128_become_narrow_on_mps_only(installed):
    x = torch.ones(2)
    on_mps = x.to(MPS)
    assert x.double().dtype == torch.float64
    narrow = (
        *(on_mps.double(), on_mps.to(torch.float64), on_mps.to(dtype=torch.double)),
        *(x.double().to("cuda"), x.double().to(on_mps), x.to("cuda", torch.float64)),
        *(torch.from_numpy(numpy.ones(2)).cuda(), x.double().to(MPS, dtype=torch.float64)),
    )
    assert {(one.dtype, one.device) for one in narrow} == {(torch.float32, MPS)}
    assert x.to(torch.complex128).to("cuda").dtype == torch.complex64
    assert on_mps.to("cpu", torch.float64).dtype == torch.float64
    assert x.double().to("cuda", torch.int32).dtype == torch.int32
    # float32 lacks this number.
    assert torch.tensor(2.0**24 + 1, dtype=torch.double).to("cuda", torch.int32) == 2**24 + 1


def test_the_layout_and_the_wait_of_a_copy_are_as_asked(installed):
    x, layout = torch.ones(2, 3, 4, 5), {"memory_format": torch.channels_last}
    for copy in (x.cuda(**layout), x.double(**layout), x.to(MPS).double(**layout)):
        assert copy.is_contiguous(**layout)
    with k2.mps.counters() as counted:
        x.cuda(non_blocking=True)
    assert counted.torch_waits == 0


def test_a_second_call_replaces_nothing(installed):
    before = [getattr(owner, name) for owner, name in PATCHED]
    patched.install()
    patched.install_in_k2()
    assert [getattr(owner, name) for owner, name in PATCHED] == before


def test_a_torch_without_distributed(monkeypatch):
    for owner, name in PATCHED:
        monkeypatch.setattr(owner, name, getattr(owner, name))
    before = torch.distributed.init_process_group
    monkeypatch.setattr(torch.distributed, "is_available", lambda: False)
    patched.install()
    assert torch.distributed.init_process_group is before


def test_objects_of_k2_move_to_the_gpu_by_any_name(installed):
    fsa = k2.Fsa.from_str("0 1 -1 0.5\n1")
    assert fsa.to("cuda:0").device == fsa.to(torch.device("cuda", 1)).device == MPS
    assert k2.RaggedTensor([[1, 2]]).to("cuda").device == MPS
    assert k2.RaggedTensor([[1, 2]]).to(dtype=torch.float32).dtype == torch.float32
    segments = torch.tensor([[0, 0, 2]], dtype=torch.int32)
    assert k2.DenseFsaVec(torch.zeros(1, 2, 3), segments).to(device="cuda").device == MPS


def test_graphs_of_k2_are_made_on_the_gpu_by_any_name(installed):
    labels = [[1, 2], [3]]
    # All functions of k2 that make a graph on a device, and their first argument.
    graphs = {
        "ctc_graph": labels,
        "ctc_topo": 2,
        "levenshtein_graph": labels,
        "linear_fsa": labels,
        "trivial_graph": 2,
    }
    functions = {name: one for name, one in vars(k2).items() if inspect.isfunction(one)}
    assert graphs.keys() == {
        name for name, one in functions.items() if "device" in inspect.signature(one).parameters
    }
    for name, first in graphs.items():
        for device in ("cuda", "cuda:1", torch.device("cuda", 0)):
            assert functions[name](first, device=device).device == MPS
        assert functions[name](first, device="cpu").device == torch.device("cpu")
    assert k2.linear_fsa([1, 2], "cuda:0").device == MPS


def test_ragged_tensors_are_made_on_the_gpu_by_any_name(installed):
    for make in (k2.RaggedTensor, k2.ragged.create_ragged_tensor):
        assert make([[1], [2, 3]], device="cuda:0").device == MPS
        assert make([[1], [2, 3]], torch.int32, torch.device("cuda", 1)).tolist() == [[1], [2, 3]]
        assert make("[[1] [2 3]]", device="cpu").device == torch.device("cpu")


def test_k2_can_use_the_gpu_for_a_program_that_asks_for_cuda(installed):
    assert k2.with_cuda


def test_checkpoints_of_cuda_load(installed, tmp_path, monkeypatch):
    path = tmp_path / "x.pt"
    monkeypatch.setattr(torch.serialization, "location_tag", lambda storage: "cuda:1")
    torch.save({"x": torch.ones(2)}, path)
    monkeypatch.undo()
    for owner, name in PATCHED:
        monkeypatch.setattr(owner, name, getattr(owner, name))
    with pytest.raises(RuntimeError, match="CUDA"):
        torch.load(path)
    patched.install()
    for how in ({}, {"map_location": "cuda:0"}, {"map_location": {"cuda:1": "cuda:0"}}):
        for load in (torch.load, torch.serialization.load):
            assert load(path, **how)["x"].device == MPS
    assert torch.load(path, map_location="cpu")["x"].device == torch.device("cpu")
    assert torch.load(path, map_location=lambda storage, tag: storage)["x"].tolist() == [1, 1]


def test_checkpoints_of_the_cpu_load_there_with_all_arguments(installed, tmp_path):
    path = tmp_path / "x.pt"
    torch.save({"x": torch.ones(2)}, path)
    assert torch.load(path)["x"].device == torch.device("cpu")
    with pytest.raises(RuntimeError, match="pickle_module"):
        torch.load(path, "cpu", pickle, weights_only=True)


def test_nccl_becomes_gloo(installed, tmp_path):
    inner = torch.distributed.distributed_c10d
    modules = {"nccl": torch.distributed, "cpu:gloo,cuda:nccl": inner, "NCCL": torch.distributed}
    for backend, module in modules.items():
        module.init_process_group(
            backend,
            init_method=f"file://{tmp_path}/{backend.replace(',', '')}-nccl",
            rank=0,
            world_size=1,
            device_id=torch.device("cuda", 0),
        )
        try:
            assert torch.distributed.get_backend() == "gloo"
            x = torch.ones(2, device=MPS)
            group = module.new_group([0], backend="nccl")
            torch.distributed.all_reduce(x, group=group)
            model = torch.nn.Linear(2, 2).to(MPS)
            # The rank of another Mac is 1, and its only device has the index 0.
            Parallel = torch.nn.parallel.DistributedDataParallel
            parallel = Parallel(model, [1], 1)
            assert parallel(torch.ones(1, 2)).device == MPS
            parallel = Parallel(model, [1], 1, 1, find_unused_parameters=True)
            assert parallel.find_unused_parameters and parallel.dim == 1
            assert Parallel(model).device_ids is None
            with pytest.raises(ValueError, match=r"device_ids \[1\]"):
                Parallel(torch.nn.Linear(2, 2), [1])
        finally:
            torch.distributed.destroy_process_group()


def test_other_backends_stay():
    for backend in ("gloo", "mpi", "cpu:gloo,mps:gloo", None):
        assert patched._gloo(backend) == backend


def test_torchs_ctc_is_computed_on_mps(installed):
    log_probs = torch.randn(20, 2, 5).log_softmax(-1)
    labels = torch.tensor([[1, 2, 3], [3, 4, 1]])
    loss = torch.nn.CTCLoss()
    expected = loss(log_probs, labels, (20, 15), (3, 2))
    found = loss(log_probs.cuda(), labels, (20, 15), (3, 2))
    assert found.device == MPS and torch.allclose(found.cpu(), expected, rtol=1e-5)


def test_without_mps_nothing_is_replaced(without_mps):
    before = [getattr(owner, name) for owner, name in PATCHED]
    patched.install()
    patched.install_in_k2()
    assert [getattr(owner, name) for owner, name in PATCHED] == before


class Fbank:
    """Stands in for kaldifeat's extractors, which take tensors on the CPU."""

    def __call__(self, samples, chunk=1):
        assert all(not one.is_mps for one in translate._tensors(samples))
        if isinstance(samples, (list, tuple)):
            return type(samples)(one + chunk for one in samples)
        return samples + chunk


def test_features_are_computed_on_the_cpu_and_go_back():
    x = torch.ones(2, device=MPS)
    found = translate.features(Fbank(), x, chunk=3)
    assert found.device == MPS and found.tolist() == [4, 4]
    assert translate.features(Fbank(), x, 3).tolist() == [4, 4]
    assert translate.features(Fbank(), x.cpu(), chunk=3).tolist() == [4, 4]
    pair = translate.features(Fbank(), (x, x))
    assert isinstance(pair, tuple) and pair[1].device == MPS
    assert [one.device for one in translate.features(Fbank(), [x, x])] == [MPS, MPS]
    assert [one.device for one in translate.features(Fbank(), [x.cpu(), x])] == [MPS, MPS]
    assert translate.features(Fbank(), x.cpu()).device == torch.device("cpu")
    assert translate.features_device(MPS) == torch.device("cpu")
    assert translate.features_device("cuda") == torch.device("cpu")
    assert translate.features_device("meta") == "meta"


def test_random_numbers_of_the_gpu_have_a_seed_and_a_state():
    gpu.manual_seed_all(3)
    state, states = gpu.get_rng_state(), gpu.get_rng_state_all()
    first = torch.rand(3, device=MPS).tolist()
    for again in (
        lambda: gpu.manual_seed(3),
        lambda: gpu.set_rng_state(state),
        lambda: gpu.set_rng_state_all(states),
        lambda: gpu.set_rng_state_all(iter(states)),
    ):
        again()
        assert torch.rand(3, device=MPS).tolist() == first
    assert torch.rand(3, device=MPS).tolist() != first


def test_there_is_one_gpu():
    assert gpu.device_count() == 1 and gpu.current_device() == 0
    assert gpu.get_device_name(0) == "mps"
    gpu.set_device(1)
    with gpu.device(1):
        assert torch.zeros(1, device=gpu.pick_device(1)).device == MPS
    assert gpu.max_memory_reserved() >= gpu.memory_allocated()
