"""`k2mps recipes` rewrites the calls of CUDA in a checkout, and git can undo the changes."""

import ast
import os

import pytest
from k2mps.core import bounded
from k2mps.run import rewriting

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.support import git

# This code was written for these tests.  It calls the same functions as icefall's code.
UTILS = '''"""Helpers."""
import warnings

import k2
import torch


def create_grad_scaler(device="cuda", **kwargs):
    """As torch.cuda.amp.GradScaler was."""
    return torch.amp.GradScaler(device=device, **kwargs)


def torch_autocast(device_type="cuda", **kwargs):
    return torch.amp.autocast(device_type=device_type, **kwargs)
'''

TRAIN = """#!/usr/bin/env python3
import logging
import torch
import torch.multiprocessing as mp
from torch.cuda.amp import GradScaler, autocast
from torch.nn.parallel import DistributedDataParallel as DDP


def run(rank, params):
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", rank)
    # torch.cuda.empty_cache() is of no use here
    assert torch.cuda.is_bf16_supported(), "torch.cuda.is_bf16_supported() says no"
    if params.world_size > 1:
        model = DDP(params.model, device_ids=[rank], find_unused_parameters=True)
    scaler = GradScaler(enabled=params.use_fp16)
    with autocast(enabled=params.use_fp16):
        loss = torch.nn.functional.ctc_loss(*params.batch)
    with torch.amp.autocast("cuda", dtype=torch.bfloat16):
        pass
    logging.info(f"so far {torch.cuda.max_memory_allocated()//1000000}MB of {'GPU'}")
    return scaler, loss


def main(params):
    mp.spawn(run, args=(params,), nprocs=params.world_size, join=True)


if __name__ == "__main__":
    main(None)
"""


def changed(source: str, changes: dict[str, str]) -> str:
    """Makes replacements {old: new} in a text, which must contain each `old` exactly once."""
    for old, new in changes.items():
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    return source


REWRITTEN_TRAIN = changed(
    TRAIN,
    {
        "torch.cuda.amp import GradScaler, autocast": "k2_mac.gpu import GradScaler, autocast",
        "import DistributedDataParallel as DDP": (
            "import DistributedDataParallel as DDP\nfrom k2_mac import gpu"
        ),
        "device_ids=[rank]": "device_ids=[gpu.pick_device(rank).index]",
        "mp.spawn(": "gpu.spawn(",
        "if torch.cuda.is_available()": "if gpu.is_available()",
        'torch.device("cuda", rank)': "gpu.pick_device(rank)",
        "assert torch.cuda.is_bf16_supported()": "assert gpu.is_bf16_supported()",
        "torch.nn.functional.ctc_loss": "gpu.ctc_loss",
        'torch.amp.autocast("cuda", ': "gpu.autocast(",
        "torch.cuda.max_memory_allocated()": "gpu.max_memory_allocated()",
    },
)

SCALING = """import torch
from torch.cuda.amp import custom_bwd, custom_fwd


class Softmax(torch.autograd.Function):
    @staticmethod
    @custom_fwd
    def forward(ctx, x):
        y = x.softmax(dim=-1)
        if torch.is_autocast_enabled():
            y = y.to(torch.get_autocast_gpu_dtype())
        return y
"""

DIST = """import torch
from torch import distributed as dist


def setup_dist(rank, world_size):
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    torch.cuda.set_device(rank)
"""

FBANK = """import torch
from lhotse import KaldifeatFbank

device = torch.device("cpu")
if torch.cuda.is_available():
    device = torch.device("cuda", 0)
extractor = KaldifeatFbank(device)
"""

FILES = {
    "icefall/utils.py": UTILS,
    "egs/yesno/train.py": TRAIN,
    "egs/yesno/windows.py": TRAIN.replace("\n", "\r\n"),
    "egs/yesno/scaling.py": SCALING,
    "egs/yesno/fbank.py": FBANK,
    "egs/yesno/own.py": "import torch\n\ngpu = torch.cuda.memory_allocated()\n",
    "egs/yesno/config.py": (
        'import torch\n\nd.start("nccl")\ntorch.cuda.get_device_name(0)\nx.cuda()\n'
    ),
    "icefall/dist.py": DIST,
    "egs/yesno/README.md": "torch.cuda.empty_cache()\n",
    "egs/yesno/bare.py": "torch.cuda.empty_cache()\n",
    "egs/yesno/broken.py": 'import torch\n"""torch.cuda.empty_cache()\n',
}
REWRITTEN = [
    "egs/yesno/bare.py",
    "egs/yesno/scaling.py",
    "egs/yesno/train.py",
    "egs/yesno/windows.py",
    "icefall/dist.py",
    "icefall/utils.py",
]


@pytest.fixture
def icefall(tmp_path):
    directory = tmp_path / "icefall"
    directory.mkdir()
    git(directory, "init", "--quiet", "--initial-branch=master")
    git(directory, "config", "core.autocrlf", "false")
    support.write(directory, FILES)
    (directory / "egs/yesno/train.py").chmod(0o755)
    os.symlink("train.py", directory / "egs/yesno/linked.py")
    git(directory, "add", "--all")
    git(directory, "commit", "--quiet", "-m", "First")
    return directory


def test_calls_of_cuda_are_rewritten_and_other_files_stay(empty, icefall):
    out = empty.ok("recipes", "icefall", str(icefall))
    assert "rewrote 6 files" in out and f"git -C {icefall} restore ." in out
    assert git(icefall, "diff", "--name-only").split() == REWRITTEN
    assert (icefall / "egs/yesno/train.py").read_text() == REWRITTEN_TRAIN
    assert os.access(icefall / "egs/yesno/train.py", os.X_OK)
    windows = (icefall / "egs/yesno/windows.py").read_bytes().decode()
    assert windows == REWRITTEN_TRAIN.replace("\n", "\r\n")
    utils = (icefall / "icefall/utils.py").read_text()
    assert "def torch_autocast(device_type=gpu.device_type(), **kwargs)" in utils
    assert '"""As torch.cuda.amp.GradScaler was."""' in utils
    assert (icefall / "icefall/dist.py").read_text() == changed(
        DIST,
        {
            "import distributed as dist": "import distributed as dist\nfrom k2_mac import gpu",
            '"nccl"': "gpu.dist_backend()",
            "torch.cuda.set_device": "gpu.set_device",
        },
    )
    scaling = (icefall / "egs/yesno/scaling.py").read_text()
    assert "from k2_mac.gpu import custom_bwd, custom_fwd" in scaling
    assert "y.to(gpu.get_autocast_dtype())" in scaling


def test_a_second_rewrite_is_refused(empty, icefall):
    empty.ok("recipes", "icefall", str(icefall))
    assert "rewritten already" in empty.fails(1, "recipes", "icefall", str(icefall))


def test_git_restore_undoes_the_rewriting(empty, icefall):
    before = support.snapshot(icefall, times=False)
    empty.ok("recipes", "icefall", str(icefall))
    git(icefall, "restore", ".")
    assert support.snapshot(icefall, times=False) == before


def test_any_checkout_that_imports_k2_is_rewritten(empty, icefall):
    git(icefall, "mv", "icefall/utils.py", "egs/yesno/other.py")
    git(icefall, "commit", "--quiet", "-m", "No icefall/utils.py")
    assert "rewrote 6 files" in empty.ok("recipes", str(icefall))


def test_the_tool_names_files_that_stay_and_calls_that_need_cuda(empty, icefall):
    result = empty.run("recipes", "icefall", str(icefall))
    assert "own.py: stays as it is: it uses the name `gpu` already" in result.stderr
    assert "broken.py: stays as it is: line 2: unterminated" in result.stderr
    assert "fbank.py: stays as it is: it computes features with kaldifeat" in result.stderr
    needed = 'config.py: still needs CUDA for "nccl", torch.cuda.get_device_name, x.cuda'
    assert needed in result.stderr


def test_a_checkout_with_edits_is_refused(empty, icefall):
    train = icefall / "egs/yesno/train.py"
    train.write_text(TRAIN + "# mine\n")
    before = support.snapshot(icefall)
    assert "egs/yesno/train.py" in empty.fails(1, "recipes", "icefall", str(icefall))
    assert support.snapshot(icefall) == before


def test_git_can_revert_a_commit_of_the_rewriting_below_later_edits(empty, icefall):
    empty.ok("recipes", "icefall", str(icefall))
    git(icefall, "commit", "--quiet", "--all", "-m", "For mps")
    assert "rewrote 0 files" in empty.ok("recipes", "icefall", str(icefall))
    train = icefall / "egs/yesno/train.py"
    train.write_text(train.read_text() + "# mine\n")
    git(icefall, "commit", "--quiet", "--all", "-m", "Mine")
    git(icefall, "revert", "--no-edit", "HEAD~")
    assert train.read_text() == TRAIN + "# mine\n"


def test_a_folder_that_is_no_checkout_of_recipes_is_refused(empty, icefall, tmp_path):
    copy = tmp_path / "copy"
    support.write(copy, FILES)
    for folder in (copy, icefall / "egs"):
        told = empty.fails(1, "recipes", "icefall", str(folder))
        assert f"{folder} is not the root of a checkout that uses k2" in told
    (icefall / "icefall/utils.py").rename(icefall / "egs/other.py")
    (icefall / "egs/other.py").write_text("import torch\n")
    git(icefall, "add", "--all")
    git(icefall, "commit", "--quiet", "-m", "Without k2")
    assert "imports k2" in empty.fails(1, "recipes", str(icefall))


SHAPES = {
    'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")': (
        "device = torch.device(str(gpu.pick_device()))"
    ),
    "if torch.cuda.is_available():\n    params.device = torch.device('cuda:0')": (
        "if gpu.is_available():\n    params.device = gpu.pick_device()"
    ),
    "with torch.cuda.amp.autocast(enabled=False):\n    pass": (
        "with gpu.autocast(enabled=False):\n    pass"
    ),
    'scaler = torch.amp.GradScaler("cuda", enabled=True)': "scaler = gpu.GradScaler(enabled=True)",
    "torch.cuda.synchronize(device=x.device)": "gpu.synchronize(device=x.device)",
    "if torch.cuda.is_available():\n    devices.append(torch.device('cuda', 0))": (
        "if gpu.is_available():\n    devices.append(gpu.pick_device(0))"
    ),
    'device = torch.device("cuda")  # always': "device = gpu.pick_device()  # always",
    'device = "cuda" if torch.cuda.is_available() else "cpu"': "device = str(gpu.pick_device())",
    "y = (x.is_cuda and cut(torch.cuda.memory_allocated()))": (
        "y = (x.device.type == gpu.device_type() and cut(gpu.memory_allocated()))"
    ),
    "a = torch.zeros(2, dtype=torch.double, device=x.device)\na += b.to(torch.double)": (
        "a = torch.zeros(2, dtype=gpu.double(), device=x.device)\na += b.to(gpu.double())"
    ),
    'x = (torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu"))': (
        'x = (gpu.pick_device() if gpu.is_available() else torch.device("cpu"))'
    ),
    'forward = custom_fwd(device_type="cuda")(forward)': (
        "forward = custom_fwd(device_type=gpu.device_type())(forward)"
    ),
    'z = "é", torch.cuda.\\\n  memory_reserved(), "\u2028"': (
        'z = "é", gpu.memory_reserved(), "\u2028"'
    ),
    "model = DDP(model, device_ids=[params.rank])": (
        "model = DDP(model, device_ids=[gpu.pick_device(params.rank).index])"
    ),
    "torch.distributed.init_process_group(backend='nccl')": (
        "torch.distributed.init_process_group(backend=gpu.dist_backend())"
    ),
    # None: the tool leaves this code as it is.
    "if torch.cuda.is_available():\n    nccl()": None,
    "if torch.cuda.is_available():\n    torch.cuda.get_device_name(0)": None,
    "mp.spawn(f)": None,
    'd.start("nccl")': None,
    "y = x.is_cuda and x.any()": None,
    "model.to(torch.float64)": None,
}


# kaldifeat computes only on CUDA or the CPU, even if the model is on mps.
STREAMING = """import torch
from kaldifeat import Fbank, FbankOptions


def decode(model, samples):
    device = model.device
    opts = FbankOptions()
    opts.device = device
    fbank = Fbank(opts)
    return fbank(samples.to(device))


def main():
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", 0)
"""
REWRITTEN_STREAMING = changed(
    STREAMING,
    {
        "FbankOptions\n\n": "FbankOptions\nfrom k2_mac import gpu\n\n",
        "opts.device = device": 'opts.device = "cpu" if device.type == "mps" else device',
        "samples.to(device))": "samples.to(opts.device)).to(device)",
        "torch.cuda.is_available()": "gpu.is_available()",
        'torch.device("cuda", 0)': "gpu.pick_device(0)",
    },
)


def test_features_of_kaldifeat_are_computed_on_the_cpu_for_a_model_on_mps():
    assert rewriting.rewrite(STREAMING) == (REWRITTEN_STREAMING, "")
    assert rewriting.rewrite(REWRITTEN_STREAMING) == (REWRITTEN_STREAMING, "")
    on_host = STREAMING.replace("= device\n", '= "cpu"\n').replace("samples.to(device)", "samples")
    assert "device = gpu.pick_device(0)" in rewriting.rewrite(on_host)[0]


def test_other_uses_of_kaldifeat_stay():
    source = STREAMING.replace("samples.to(device)", "[wave.to(device) for wave in samples]")
    with pytest.raises(ValueError, match="computes features with kaldifeat"):
        rewriting.rewrite(source)


@pytest.mark.parametrize("shape", SHAPES)
def test_each_form_of_a_call_is_rewritten_or_stays(shape):
    source = f"import torch\n{shape}\n"
    expected = SHAPES[shape]
    if expected is None:
        assert rewriting.rewrite(source)[0] == source
        return
    rewritten = rewriting.rewrite(source)[0]
    assert rewritten == f"import torch\nfrom k2_mac import gpu\n{expected}\n"
    ast.parse(rewritten)
    assert rewriting.rewrite(rewritten)[0] == rewritten


@pytest.mark.parametrize("end", ["\r\n", "\r", ""])
def test_line_ends_stay(end):
    source = end.join(["import torch", "torch.cuda.empty_cache()", ""]) if end else "import torch"
    expected = source.replace("torch.cuda.empty", "gpu.empty")
    if end:
        ours = "from k2_mac import gpu" + ("\n" if end == "\r" else end)
        expected = expected.replace(f"import torch{end}", f"import torch{end}{ours}")
    assert rewriting.rewrite(source)[0] == expected


def test_a_byte_order_mark_stays():
    expected = "\ufefffrom k2_mac import gpu\ngpu.empty_cache()\n"
    assert rewriting.rewrite("\ufefftorch.cuda.empty_cache()\n")[0] == expected


def test_the_import_comes_after_a_docstring():
    source = '"""Says what\nit does."""\ntorch.cuda.empty_cache()\n'
    expected = source.replace('."""\n', '."""\nfrom k2_mac import gpu\n').replace("torch.c", "c")
    assert rewriting.rewrite(source)[0] == expected.replace("cuda.empty", "gpu.empty")


@pytest.mark.parametrize("count", [300, 3000, 100_000])
@pytest.mark.parametrize(
    "nested", [lambda count: "(" * count + ")" * count, lambda count: "+".join("1" * count)]
)
def test_a_deep_program_is_rewritten_or_stays(empty, icefall, nested, count):
    write = {"egs/yesno/deep.py": f"torch.cuda.empty_cache()\nx = {nested(count)}\n"}
    support.commit(icefall, "Deep", write)
    spent = os.times().children_user
    result = empty.run("recipes", str(icefall))
    assert result.returncode == 0 and "Traceback" not in result.stderr
    rewritten = "gpu.empty_cache()" in (icefall / "egs/yesno/deep.py").read_text()
    assert rewritten != ("deep.py: stays as it is" in result.stderr)
    assert os.times().children_user - spent < 20  # seconds of CPU time; a few are usual


def test_what_is_no_regular_file_is_not_read(icefall):
    """git lists a program by its name, but the file of that name may now be a pipe or a device."""
    with pytest.raises(ValueError, match="not a regular file"):
        bounded.read(icefall, 100)
    os.mkfifo(icefall / "pipe.py")
    with pytest.raises(ValueError, match="not a regular file"):
        bounded.read(icefall / "pipe.py", 100)
    with pytest.raises(ValueError, match="more than 0 MiB"):
        bounded.read(icefall / "egs/yesno/train.py", 100)


TRANSDUCER = """import k2


class Model:
    def forward(self, x):
        logits = self.joiner(x, x, project_input=False)
        return k2.rnnt_loss_pruned(logits=logits.float(), symbols=self.symbols)
"""
IN_PLACE = TRANSDUCER.replace("k2.rnnt_loss_pruned", "k2.mps.rnnt_loss_pruned_in_place")
OF_OTHERS = {
    "used again": ("return k2", "y = logits.sum()\n        return k2"),
    "made by another layer": ("self.joiner(", "self.softmax("),
    "made twice": ("        return", "        logits = self.joiner(x, x)\n        return"),
    "changed before the loss": ("logits.float()", "logits.exp()"),
}


def test_a_loss_is_made_in_place_only_on_demand():
    assert rewriting.rewrite(TRANSDUCER, in_place=True) == (IN_PLACE, "")
    assert rewriting.rewrite(IN_PLACE, in_place=True) == (IN_PLACE, "")
    assert rewriting.rewrite(TRANSDUCER) == (TRANSDUCER, "")


@pytest.mark.parametrize("name", OF_OTHERS)
def test_a_loss_stays_if_other_code_may_use_its_logits(name):
    source = changed(TRANSDUCER, dict([OF_OTHERS[name]]))
    assert rewriting.rewrite(source, in_place=True) == (source, "")


def test_the_option_in_place_rewrites_losses(empty, icefall):
    support.write(icefall, {"egs/yesno/model.py": TRANSDUCER})
    git(icefall, "add", "--all")
    git(icefall, "commit", "--quiet", "-m", "Second")
    assert "rewrote 7 files" in empty.ok("recipes", "--in-place", str(icefall))
    assert (icefall / "egs/yesno/model.py").read_text() == IN_PLACE
