"""`python -m k2_mac.run` runs programs that were written for CUDA, and changes no file."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import venv

import pytest
import torch

from k2_mac import run
from k2_mac.hook import Hook
from k2_mps_tests.running import ran

ROOT = pathlib.Path(__file__).parents[2]
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2)

# A recipe in the style of icefall: a pruned transducer, DDP, autocast and checkpoints.
RECIPE = {
    "asr/train.py": '''#!/usr/bin/env python3
"""Trains."""
import argparse
import os

import k2
import torch
import torch.multiprocessing as mp
from torch.cuda.amp import GradScaler
from torch.nn.parallel import DistributedDataParallel as DDP

from asr.dist import setup_dist
from asr.model import Model
from asr.utils import memory, torch_autocast


def run(rank, world_size, args):
    if world_size > 1:
        setup_dist(rank, world_size)
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", rank)
    torch.manual_seed(42)
    model = Model().to(device)
    if world_size > 1:
        model = DDP(model, device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = GradScaler(enabled=args.use_fp16, init_scale=128.0)
    symbols = torch.tensor([[1, 2, 3], [3, 1, 0]], device=device)
    boundary = torch.tensor([[0, 0, 3, 20], [0, 0, 2, 15]], device=device)
    for step in range(3):
        x = torch.linspace(-1, 1, 2 * 20 * 8).reshape(2, 20, 8) * (step + rank + 1)
        with torch_autocast(enabled=args.use_fp16):
            loss = model(x.to(device), symbols, boundary)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        assert memory(loss) > 0
    if rank == 0:
        torch.save([loss.detach(), *model.parameters()], args.result)
    if world_size > 1:
        torch.distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("result")
    parser.add_argument("--world-size", type=int, default=1)
    parser.add_argument("--use-fp16", action="store_true")
    args = parser.parse_args()
    os.environ.setdefault("MASTER_ADDR", "localhost")
    os.environ.setdefault("MASTER_PORT", "0")
    if args.world_size > 1:
        mp.spawn(run, args=(args.world_size, args), nprocs=args.world_size, join=True)
    else:
        run(0, 1, args)


if __name__ == "__main__":
    main()
''',
    "asr/__init__.py": "",
    "asr/dist.py": """import os
import torch
from torch import distributed as dist


def setup_dist(rank, world_size):
    dist.init_process_group(
        "nccl", init_method=os.environ["STORE"], rank=rank, world_size=world_size
    )
    torch.cuda.set_device(rank)
""",
    "asr/utils.py": """import torch


def torch_autocast(device_type="cuda", **kwargs):
    return torch.amp.autocast(device_type=device_type, **kwargs)


def memory(x):
    return x.is_cuda and torch.cuda.max_memory_allocated()
""",
    "asr/model.py": """import k2
import torch
import torch.nn as nn

from asr.utils import torch_autocast


class Rounded(torch.autograd.Function):
    @staticmethod
    @torch.cuda.amp.custom_fwd
    def forward(ctx, x):
        if torch.is_autocast_enabled():
            x = x.to(torch.get_autocast_gpu_dtype())
        return x

    @staticmethod
    @torch.cuda.amp.custom_bwd
    def backward(ctx, grad):
        return grad


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(8, 6), nn.Embedding(4, 6)

    def forward(self, x, symbols, boundary):
        am = Rounded.apply(self.encoder(x)).float()
        lm = self.decoder(torch.cat([torch.zeros_like(symbols[:, :1]), symbols], dim=1))
        scale = torch.ones(6, dtype=torch.float64, device=x.device)
        with torch_autocast(enabled=False):
            simple, (px_grad, py_grad) = k2.rnnt_loss_smoothed(
                lm=lm,
                am=am,
                symbols=symbols,
                termination_symbol=0,
                boundary=boundary,
                reduction="sum",
                return_grad=True,
            )
            ranges = k2.get_rnnt_prune_ranges(px_grad, py_grad, boundary, 2)
            am, lm = k2.do_rnnt_pruning(am=am, lm=lm, ranges=ranges)
            logits = torch.tanh(am + lm) * scale.to(am.dtype)
            pruned = k2.rnnt_loss_pruned(logits, symbols, ranges, 0, boundary, reduction="sum")
        return simple + pruned
""",
}
# The same recipe, changed by hand for mps.
BY_HAND = {
    "asr/train.py": {
        "from torch.cuda.amp import GradScaler": "from k2_mac import gpu",
        "torch.cuda.is_available()": "gpu.is_available()",
        'torch.device("cuda", rank)': "gpu.pick_device(rank)",
        "device_ids=[rank]": "device_ids=[0]",
        "GradScaler(enabled": "gpu.GradScaler(enabled",
    },
    "asr/dist.py": {
        "import torch\n": "from k2_mac import gpu\n",
        '"nccl"': "gpu.dist_backend()",
        "    torch.cuda.set_device(rank)\n": "",
    },
    "asr/utils.py": {
        "import torch": "import torch\nfrom k2_mac import gpu",
        'device_type="cuda"': 'device_type="mps"',
        "x.is_cuda and torch.cuda.max_memory_allocated()": "gpu.max_memory_allocated()",
    },
    "asr/model.py": {
        "import torch\n": "import torch\nfrom k2_mac import gpu\n",
        "torch.cuda.amp.custom_fwd": "gpu.custom_fwd",
        "torch.cuda.amp.custom_bwd": "gpu.custom_bwd",
        "torch.is_autocast_enabled()": "gpu.is_autocast_enabled()",
        "torch.get_autocast_gpu_dtype()": "gpu.get_autocast_dtype()",
        "float64": "float32",
    },
}


def by_hand():
    files = dict(RECIPE)
    for path, changes in BY_HAND.items():
        for old, new in changes.items():
            assert files[path].count(old) == 1, old
            files[path] = files[path].replace(old, new)
    return files


def write(root, files):
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(text if isinstance(text, bytes) else text.encode())


@pytest.fixture(scope="session")
def python(tmp_path_factory):
    """A Python that finds all packages that this one finds, and has k2_mac_run.pth, as a wheel."""
    folder = tmp_path_factory.mktemp("python")
    venv.create(folder, symlinks=True)
    site = pathlib.Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
    found = [path for path in sys.path if os.path.isdir(path)]
    own = [path for path in found if not path.startswith(sys.base_prefix + os.sep)]
    (site / "packages.pth").write_text("".join(f"{path}\n" for path in own))
    shutil.copy(ROOT / "k2_mac/k2_mac_run.pth", site)
    return folder / "bin/python"


@pytest.fixture
def project(tmp_path, python):
    """A function that writes files in a folder, and runs Python there; returns its output.

    Its first argument is a name of the folder.  The status of the program must be as expected.
    """

    def run_in(folder, files, *arguments, status=0, input=None, **variables):
        root = tmp_path / folder
        write(root, {**files, ".git/HEAD": ""})
        environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
        environment["PYTHONDONTWRITEBYTECODE"] = ""
        environment |= {"STORE": f"file://{tmp_path}/store-{folder}", **variables}
        result = ran(python, *arguments, cwd=root, env=environment, input=input)
        assert result.returncode == status, result.stderr
        return result

    return run_in


@pytest.fixture
def command(project):
    """A function that runs `python -m k2_mac.run` with a program in the folder "project"."""

    def run_in_project(files, *arguments, **how):
        return project("project", files, "-m", "k2_mac.run", *arguments, **how)

    return run_in_project


def same_tensors(one, other):
    found, expected = (torch.load(path, map_location="cpu") for path in (one, other))
    assert len(found) == len(expected) > 2
    assert all(torch.equal(a, b) for a, b in zip(found, expected))
    assert found[0].isfinite()


@pytest.mark.parametrize(
    "options", [(), ("--use-fp16",), ("--world-size", 2)], ids=["float32", "float16", "two ranks"]
)
def test_an_unchanged_recipe_computes_what_the_recipe_changed_by_hand_computes(
    project, tmp_path, options
):
    results = tmp_path / "changed.pt", tmp_path / "by-hand.pt"
    recipe = ("-m", "k2_mac.run", "asr/train.py", results[0])
    told = project("recipe", RECIPE, *recipe, *options).stderr
    project("hand", by_hand(), "asr/train.py", results[1], *options)
    same_tensors(*results)
    assert told.count("there is no CUDA") == 1
    assert "asr/train.py and 3 other files use mps" in told
    assert "float32: asr/model.py:30 torch.ones\n" in told


def test_torchrun_starts_the_ranks_of_an_unchanged_recipe(project, tmp_path):
    results = tmp_path / "outside.pt", tmp_path / "inside.pt", tmp_path / "by-hand.pt"
    hook = ("-m", "k2_mac.run")
    for start, result in (((*TORCHRUN, *hook), results[0]), ((*hook, *TORCHRUN), results[1])):
        recipe = (*start, "asr/train.py", result, "--world-size", 2)
        told = project(result.stem, RECIPE, *recipe).stderr
        assert told.count("there is no CUDA") == 1
    project("hand", by_hand(), "asr/train.py", results[2], "--world-size", 2)
    same_tensors(results[0], results[2])
    same_tensors(results[1], results[2])


def test_an_example_for_cuda_trains_as_for_mps(python, tmp_path):
    start = {"cuda": ("-m", "k2_mac.run", "--quiet"), "mps": ()}
    for device, options in start.items():
        training = ("--device", device, "--steps", 3, "--held-out", 2)
        program = (ROOT / "examples/ctc.py", tmp_path / device, *training)
        result = ran(python, *options, *program, cwd=ROOT)
        assert result.returncode == 0, result.stderr
    weights = [
        torch.load(tmp_path / device / "checkpoint.pt", map_location="cpu")["model"]
        for device in start
    ]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


# ---- the program sees itself as Python would run it

HOLDS = """import inspect
import os
import pickle
import sys

import torch


class Kept:
    value = 3


@torch.jit.script
def scripted(x: torch.Tensor):
    return x * 2 if x.is_cuda else x * 3


def compiled(x, device: str):
    if x.is_cuda:
        x = x.to(device) + torch.ones(2, device=device)
    return x * 2


assert "x.is_cuda" in inspect.getsource(compiled)
x = torch.ones(2, device="cuda")
function = torch.compile(compiled, backend="aot_eager", fullgraph=True)
assert function(x, "cuda:1").tolist() == [4.0, 4.0]
assert scripted(torch.ones(1)).item() == 3.0
assert pickle.loads(pickle.dumps(Kept())).value == 3
assert sys.modules["__main__"].Kept is Kept
print(__name__, __spec__ and __spec__.name, __package__, *sys.argv)
print(__file__ == os.path.abspath(__file__), sys.path[0])
"""


def test_a_program_can_read_pickle_script_and_compile_itself(command, tmp_path):
    root = tmp_path / "project"
    out = command({"main/program.py": HOLDS}, "main/program.py", "--show", "-m").stdout
    assert out == f"__main__ None None main/program.py --show -m\nTrue {root}/main\n"


def test_a_module_and_a_package_run_as_main_program(command, tmp_path):
    root = tmp_path / "project"
    files = {"pack/__init__.py": "", "pack/program.py": HOLDS, "pack/__main__.py": HOLDS}
    for name, main in (("pack.program", "program"), ("pack", "__main__")):
        out = command(files, "-m", name, "--also", "x").stdout
        argv = f"{root}/pack/{main}.py --also x"
        assert out == f"__main__ pack.{main} pack {argv}\nTrue {root}\n"


# These programs change, but neither they nor the changes import torch, so they start quickly.
FAILS = """from helper import fail


def main():
    if "mps".startswith("cuda") >= 0: fail(  # in a line that changes
        "cpu")


main()
"""
HELPER = """def fail(device):
    "mps".startswith("cuda"), 1 / (device != "cpu")
"""


def test_modules_are_searched_where_python_searches_them(project):
    files = {"asr/main.py": "import sys\nprint(sys.path)\n"}
    for options in ([], *([["-P"]] if sys.version_info >= (3, 11) else [])):
        plain = project("project", files, *options, "asr/main.py").stdout
        ours = project("project", files, *options, "-m", "k2_mac.run", "asr/main.py").stdout
        assert ours == plain


def test_a_traceback_shows_the_lines_of_the_file_and_no_line_of_ours(project):
    files = {"main.py": FAILS, "helper.py": HELPER}
    plain = project("project", files, "main.py", status=1)
    ours = project("project", files, "-m", "k2_mac.run", "--quiet", "main.py", status=1)
    assert ours.stderr == plain.stderr
    assert "line 5, in main" in ours.stderr and "ZeroDivisionError" in ours.stderr


def test_a_traceback_of_an_import_has_no_line_of_ours(project):
    files = {"main.py": "import says\nimport helper\n", "says.py": SAYS, "helper.py": "1 / 0\n"}
    plain = project("project", files, "main.py", status=1)
    ours = project("project", files, "-m", "k2_mac.run", "--quiet", "main.py", status=1)
    assert ours.stderr == plain.stderr and "ZeroDivisionError" in ours.stderr


def test_the_debugger_shows_the_lines_of_the_file(command):
    program = "x = 'mps'.startswith('cuda')\nbreakpoint()\ny = x\n"
    out = command({"main.py": program}, "main.py", input="list\np x\ncontinue\n").stdout
    assert "main.py(3)<module>()\n-> y = x" in out and "1  \tx = 'mps'.startswith('cuda')" in out
    assert "(Pdb) True\n" in out


def test_the_status_of_the_program_is_that_of_the_command(command):
    command({"main.py": "import sys; sys.exit(7)\n"}, "main.py", status=7)


@pytest.mark.parametrize("text", ["import torch\ntorch.cuda.x(\n", "\x00cuda", b"cuda = '\xff'"])
def test_a_program_that_python_cannot_read_fails_as_without_us(project, text):
    (plain, ours) = (
        project("project", {"main.py": "import other\n", "other.py": text}, *how, status=1)
        for how in (("main.py",), ("-m", "k2_mac.run", "main.py"))
    )
    assert ours.stderr == plain.stderr and "Error" in ours.stderr


# ---- files and processes

SAYS = "count = int('mps'.startswith('cuda'))\n"
PRINTS = "import says\nprint(says.count)\n"


def test_changed_code_stays_out_of_pycache_and_pycache_is_not_used_for_it(project, tmp_path):
    files = {"main.py": PRINTS, "says.py": SAYS}
    cache = tmp_path / "project/__pycache__"
    assert project("project", files, "-m", "k2_mac.run", "main.py").stdout == "1\n"
    assert not cache.exists()
    assert project("project", files, "main.py").stdout == "0\n"
    [cached] = cache.iterdir()
    before = cached.read_bytes()
    assert project("project", files, "-m", "k2_mac.run", "main.py").stdout == "1\n"
    assert [one.read_bytes() for one in cache.iterdir()] == [before]
    assert project("project", files, "main.py").stdout == "0\n"


CHILDREN = """import multiprocessing
import subprocess
import sys

import says


def show(how):
    print(how, says.count, int("mps".startswith("cuda")), flush=True)


if __name__ == "__main__":
    for how in ("fork", "spawn", "forkserver"):
        process = multiprocessing.get_context(how).Process(target=show, args=(how,))
        process.start()
        process.join()
        assert process.exitcode == 0
    for options in ([], ["-E"], ["-u", "-X", "utf8"], ["-I"]):
        subprocess.run([sys.executable, *options, "child.py", *options], check=True)
    subprocess.run([sys.executable, "-c", "import says; print(says.count)"], check=True)
"""
CHILD = """import sys
print(*sys.argv, int("mps".startswith("cuda")), flush=True)
"""


def test_processes_that_the_program_starts_change_too(command):
    files = {"main.py": CHILDREN, "says.py": SAYS, "child.py": CHILD}
    out = command(files, "main.py").stdout.splitlines()
    assert out == [
        "fork 1 1",
        "spawn 1 1",
        "forkserver 1 1",
        "child.py 1",
        "child.py -E 1",
        "child.py -u -X utf8 1",
        "child.py -I 1",
        "1",
    ]


def test_a_process_with_other_arguments_than_its_programs_goes_on(project, tmp_path):
    """A program that embeds Python can give it such arguments."""
    program = "sys.argv = ['child.py']; from k2_mac import hook; hook.child(); print('goes on')"
    told = json.dumps({"roots": [os.path.realpath(tmp_path / "project")]})
    out = project(
        "project", {"child.py": CHILD}, "-c", f"import sys; {program}", K2_MAC_RUN=told
    ).stdout
    assert out == "goes on\n"


def test_only_the_project_changes_and_installed_packages_on_demand(command, tmp_path):
    other = tmp_path / "other"
    write(other, {"elsewhere.py": SAYS})
    files = {
        "main/main.py": (
            "import sys\n"
            f"sys.path += ['lib/site-packages', {str(other)!r}]\n"
            "import elsewhere, installed.deep, says\n"
            "print(says.count, installed.deep.count, elsewhere.count)\n"
        ),
        "says.py": SAYS,
        "lib/site-packages/installed/__init__.py": "",
        "lib/site-packages/installed/deep.py": SAYS,
    }
    assert command(files, "main/main.py").stdout == "1 0 0\n"
    packages = f"{tmp_path}/project:{tmp_path}/project/lib/site-packages:{other}"
    also = ("--also", "installed", "--also", "elsewhere")
    out = command(files, *also, "main/main.py", PYTHONPATH=packages).stdout
    assert out == "1 1 1\n"
    told = command(files, "--also", "missing", "main/main.py", status=1).stderr
    assert told == "error: Python finds no package missing\n"


def test_pythons_library_below_a_root_does_not_change():
    library = os.path.dirname(os.path.realpath(os.__file__))
    assert not Hook([os.path.dirname(library)]).owns(os.path.join(library, "random.py"))
    # A package that the user names may be in the library.
    package = os.path.join(library, "json")
    assert Hook([package]).owns(os.path.join(package, "tool.py"))


# As typeguard does, this decorator compiles a function again, from the text of the file.
TYPEGUARD = """import ast
import inspect
import sys
import types


def typechecked(f):
    tree = ast.parse(inspect.getsource(sys.modules[f.__module__]))
    first = f.__code__.co_firstlineno
    code = compile(tree, f.__code__.co_filename, "exec", dont_inherit=True)
    codes = [one for one in code.co_consts if isinstance(one, types.CodeType)]
    [found] = [one for one in codes if one.co_firstlineno == first]
    return types.FunctionType(found, f.__globals__)
"""


def test_functions_that_typeguard_checks_change_too(command):
    files = {
        "main.py": (
            "import sys\nsys.path.insert(0, 'lib/site-packages')\nimport checked\nchecked.show()\n"
        ),
        "checked.py": (
            "import inspect\n"
            "import torch\n"
            "from typeguard import typechecked\n"
            "\n"
            "@typechecked\n"
            "def show():\n"
            "    print(torch.cuda.device_count(), inspect.currentframe().f_lineno)\n"
        ),
        "lib/site-packages/typeguard/__init__.py": "from ._decorators import typechecked\n",
        "lib/site-packages/typeguard/_decorators.py": TYPEGUARD,
    }
    assert command(files, "main.py").stdout == "1 7\n"


def test_a_program_without_k2_gets_none_and_sets_torchs_variables_in_time(command):
    program = """import os, sys
sys.modules["k2"] = None  # k2 is not installed
assert "torch" not in sys.modules
os.environ["SET_IN_TIME"] = "1"
import torch
try:
    import k2
except ImportError:
    k2 = None
x = torch.ones(2).cuda()
print(k2, x.device, torch.cuda.is_available(), torch.cuda.amp.autocast().device)
"""
    assert command({"main.py": program}, "main.py").stdout == "None mps:0 True mps\n"


def test_python_does_not_import_k2_mac_without_the_variable(python):
    program = "import sys; print([one for one in sys.modules if one.startswith('k2_mac')])"
    assert ran(python, "-c", program).stdout == "[]\n"


CUDA = {
    "torch/__init__.py": "class cuda:\n    is_available = staticmethod(lambda: {})\n",
    "torch/version.py": "cuda = '12.8'\nhip = None\n",
}
UNCHANGED = """import os, sys
import torch
print(torch.cuda.is_available(), *sys.argv, *sys.flags[6:7], *sys.orig_argv[1:])
print(any(name.startswith("k2_mac") for name in sys.modules), "K2_MAC_RUN" in os.environ)
"""


def test_with_cuda_python_runs_the_program_itself(project):
    files = {path: text.format(True) for path, text in CUDA.items()} | {"main.py": UNCHANGED}
    for program in (["main.py"], ["-m", "main"]):
        for module in (["-m", "k2_mac.run"], ["-mk2_mac.run"]):
            command = ["-O", "-X", "utf8", *module, "--quiet", *program, "--show"]
            out = project("project", files, *command).stdout.splitlines()
            plain = project("project", files, "-O", "-X", "utf8", *program, "--show")
            assert out == plain.stdout.splitlines()
            assert out[0].startswith("True ") and out[1] == "False False"


def test_a_torch_for_cuda_on_a_machine_without_cuda(project, tmp_path, monkeypatch):
    root = tmp_path / "project"
    write(root, {path: text.format(False) for path, text in CUDA.items()})
    program = "from k2_mac import run; print(run.has_cuda())"
    assert project("project", {}, "-c", program).stdout == "False\n"
    assert not run.has_cuda()  # a torch without CUDA


# ---- what the command prints


def test_the_changes_can_be_shown_and_made_by_patch(command, python, tmp_path):
    shown = command(RECIPE, "--show", ".")
    assert "asr/model.py:30: torch.ones: float64" in shown.stderr
    diff = shown.stdout
    assert "-    torch.cuda.set_device(rank)\n+    _gpu.set_device(rank)\n" in diff
    root = tmp_path / "project"
    subprocess.run(["patch", "-p0", "-s"], cwd=root, input=diff, text=True, check=True)
    assert "_gpu.set_device(rank)" in (root / "asr/dist.py").read_text()
    one = ran(python, "-m", "k2_mac.run", "--show", root / "asr/dist.py").stdout
    assert one == ""


def test_the_summary_names_what_stays_with_its_line(command):
    files = {
        "main.py": "from pack import (  # several\n    one,\n)\nimport pack.two\n",
        "pack/__init__.py": "",
        "pack/one.py": "def f():\n    import torch\n    return torch.cuda.Stream()\n",
        "pack/two.py": "from . import three\n",
        "pack/three.py": "def f(x):\n    return torch.nn.CTCLoss(x.double())\n",
        "pack/unused.py": "import torch\ntorch.cuda.Event()\n",
    }
    told = command(files, "main.py").stderr.splitlines()
    assert told == [
        "k2_mac.run: needs CUDA and stays: pack/one.py:3 torch.cuda.Stream",
        "k2_mac.run: float64, which mps lacks; tensors on mps become float32:"
        " pack/three.py:2 .double",
        "k2_mac.run: CTC of torch, which k2 computes on mps before torch 2.14:"
        " pack/three.py:2 torch.nn.CTCLoss",
    ]
    assert command(files, "--quiet", "main.py").stderr == ""


def test_wrong_arguments(python):
    def told(*arguments):
        result = ran(python, "-m", "k2_mac.run", *arguments)
        assert result.returncode == 2 and re.search("^usage: python -m k2_mac.run", result.stderr)
        return result.stderr.splitlines()[-1]

    assert told().endswith("which program, or which module?")
    assert told("-m").endswith("which program, or which module?")
    assert told("--shw", "x").endswith("unrecognized arguments: --shw")
    missing = ran(python, "-m", "k2_mac.run", "missing.py")
    assert missing.returncode == 1 and "can't open file" in missing.stderr
    assert ran(python, "-m", "k2_mac.run", "-h").stdout.startswith("usage: ")
