"""k2_mac.rules changes programs that were written for CUDA; the file itself is only read."""

import ast
import pathlib
import warnings

import pytest
import torch

from k2_mac import names, rules

# {code of a program for CUDA: the code that runs instead; None if nothing changes}
FORMS = {
    'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")': (
        'device = _gpu.torch_device(_gpu.map_device("cuda") if _gpu.is_available() else "cpu")'
    ),
    "if torch.cuda.is_available():\n    params.device = torch.device('cuda:0')": (
        "if _gpu.is_available():\n    params.device = _gpu.torch_device('cuda:0')"
    ),
    "with torch.cuda.amp.autocast(enabled=False):\n    pass": (
        "with _gpu.autocast(enabled=False):\n    pass"
    ),
    'with torch.amp.autocast("cuda", dtype=torch.bfloat16):\n    pass': (
        'with torch.amp.autocast(_gpu.map_device("cuda"), dtype=torch.bfloat16):\n    pass'
    ),
    "torch.amp.autocast(device_type=device_type, **kwargs)": (
        "torch.amp.autocast(device_type=_gpu.map_device(device_type), **kwargs)"
    ),
    'scaler = torch.amp.GradScaler("cuda", enabled=True)': (
        'scaler = torch.amp.GradScaler(_gpu.map_device("cuda"), enabled=True)'
    ),
    "scaler = torch.amp.GradScaler(enabled=True)": "scaler = _gpu.GradScaler(enabled=True)",
    "scaler = torch.amp.GradScaler(device=device)": (
        "scaler = torch.amp.GradScaler(device=_gpu.map_device(device))"
    ),
    "context = torch.autocast(*args, **kwargs)": (
        "context = _gpu.translated(torch.autocast, *args, **kwargs)"
    ),
    "context = torch.autocast(**kwargs)": "context = _gpu.translated(torch.autocast, **kwargs)",
    "context = torch.autocast(enabled=True, **kwargs)": (
        "context = _gpu.translated(torch.autocast, enabled=True, **kwargs)"
    ),
    "scaler = torch.amp.GradScaler(**kwargs)": "scaler = _gpu.GradScaler(**kwargs)",
    "torch.is_autocast_enabled()": "_gpu.is_autocast_enabled()",
    "y = y.to(torch.get_autocast_gpu_dtype())": "y = y.to(_gpu.get_autocast_dtype())",
    "torch.cuda.synchronize(device=x.device)": "_gpu.synchronize(device=x.device)",
    'device = torch.device("cuda")  # always': ('device = _gpu.torch_device("cuda")  # always'),
    'device = torch.device("cuda", rank)': 'device = _gpu.torch_device("cuda", rank)',
    "device = torch.device(args.device)": "device = _gpu.torch_device(args.device)",
    'device = "cuda" if torch.cuda.is_available() else "cpu"': (
        'device = _gpu.map_device("cuda") if _gpu.is_available() else "cpu"'
    ),
    "y = (x.is_cuda and cut(torch.cuda.memory_allocated()))": (
        "y = (_gpu.is_gpu(x) and cut(_gpu.memory_allocated()))"
    ),
    "a = torch.zeros(2, dtype=torch.double, device=x.device)": (
        "a = _gpu.without_float64(torch.zeros, 2, dtype=torch.double, "
        "device=_gpu.map_device(x.device))"
    ),
    "y = torch.zeros(args.size, device=args.model.device)": (
        "y = torch.zeros(args.size, device=_gpu.map_device(args.model.device))"
    ),
    "y = torch.zeros(x.shape, device=x.device)": None,
    # A tensor is on a device of the machine, but another attribute of its name can be any text.
    "y = torch.zeros(x.shape, device=x.gpu)": (
        "y = torch.zeros(x.shape, device=_gpu.map_device(x.gpu))"
    ),
    "a = x.sum(dtype=torch.float64)": "a = _gpu.without_float64(x.sum, dtype=torch.float64)",
    'x = torch.arange(3, device="cuda:1")': 'x = torch.arange(3, device=_gpu.map_device("cuda:1"))',
    'x = model(device="cuda")': 'x = model(device=_gpu.map_device("cuda"))',
    'x = model.to("cuda", non_blocking=True)': (
        'x = model.to(_gpu.map_device("cuda"), non_blocking=True)'
    ),
    'def f(x, device="cuda", *, device_type="cuda", name="cuda"):\n    pass': (
        'def f(x, device=_gpu.map_device("cuda"), *, '
        'device_type=_gpu.map_device("cuda"), name="cuda"):\n'
        "    pass"
    ),
    'forward = custom_fwd(device_type="cuda")(forward)': (
        'forward = custom_fwd(device_type=_gpu.map_device("cuda"))(forward)'
    ),
    'if x.device.type == "cuda":\n    pass': "if x.device.type in ('cuda', 'mps'):\n    pass",
    'if "cuda:0" != device:\n    pass': "if device not in ('cuda:0', 'mps:0'):\n    pass",
    'if device.type in ("cuda", "cpu"):\n    pass': (
        "if device.type in ('cuda', 'cpu', 'mps'):\n    pass"
    ),
    'if "cuda" not in str(device):\n    pass': ("if not _gpu.mentions_gpu(str(device)):\n    pass"),
    'ok = device.startswith("cuda")': "ok = device.startswith(('cuda', 'mps'))",
    'z = "é", "\u2028", torch.cuda.\\\n  memory_reserved()': (
        'z = "é", "\u2028", _gpu.memory_reserved()'
    ),
    'log(f"{torch.cuda.max_memory_allocated() // 1000000}MB {name}")': (
        "log(f'{_gpu.max_memory_allocated() // 1000000}MB {name}')"
    ),
    'log(f"""\n  {torch.cuda.device_count()}\n""")': ("log(f'\\n  {_gpu.device_count()}\\n')"),
    'log(f"{name} has no cuda")': None,
    "torch.cuda.manual_seed_all(3)": "_gpu.manual_seed_all(3)",
    "import torch.multiprocessing as mp\nmp.spawn(f)": (
        "import torch.multiprocessing as mp\n{import}_gpu.spawn(f)"
    ),
    "from torch.cuda.amp import GradScaler as S, autocast": (
        "from k2_mac.gpu import GradScaler as S, autocast"
    ),
    "from torch.cuda import amp\namp.autocast()": (
        "from torch.cuda import amp\n{import}_gpu.autocast()"
    ),
    "from torch.amp import autocast, GradScaler\ns = GradScaler()": (
        "from torch.amp import autocast, GradScaler\n{import}s = _gpu.GradScaler()"
    ),
    "from torch.cuda import Stream, is_available": (
        "from k2_mac.gpu import is_available; from torch.cuda import Stream"
    ),
    # A later statement of the file, not the import, decides what a name means.
    "from torch import device\ndef f(device):\n    device('cuda')": None,
    "import torch.distributed as dist\nassert dist.is_nccl_available()": (
        "import torch.distributed as dist\n{import}assert _gpu.is_nccl_available()"
    ),
    "mp.spawn(f)": None,
    "torch.cuda.is_available = lambda: False": None,
    "if torch.cuda.is_available():\n    torch.cuda.get_device_properties(0)": None,
    'if torch.cuda.is_available():\n    text = "CUDA " + torch.version.cuda': None,
    "if torch.cuda.is_available():\n    major = int(torch.version.cuda.split('.')[0])": None,
    'ok = torch.cuda.is_available() and torch.version.cuda >= "11.0"': None,
    **{
        f'ok = torch.cuda.is_available() and torch.version.cuda {order} "11.0"': None
        for order in ("<", "<=", ">")
    },
    'ok = torch.cuda.is_available() and "11.0" < torch.version.cuda': None,
    **{
        f"if torch.cuda.is_available():\n    v = {reader}(torch.version.cuda)": None
        for reader in (
            *("float", "int", "packaging.version.parse", "LooseVersion", "StrictVersion"),
            *("torch.torch_version.TorchVersion", "Version"),
        )
    },
    "if torch.cuda.is_available():\n    text = torch.version.cuda + ' is CUDA'": None,
    "if torch.cuda.is_available():\n    text = torch.version.cuda[:2]": None,
    "name = torch.cuda.Event() if torch.cuda.is_available() else None": None,
    "from torch.cuda import Event\nif torch.cuda.is_available():\n    Event()": None,
    "if torch.cuda.is_available() and ok(torch.cuda.is_available()):\n    torch.cuda.Event()": None,
    # These need CUDA whatever the answer is.
    "ok = torch.cuda.is_available() or torch.cuda.Event()": (
        "ok = _gpu.is_available() or torch.cuda.Event()"
    ),
    "ok = f(torch.cuda.is_available(), torch.cuda.Event()) and more": (
        "ok = f(_gpu.is_available(), torch.cuda.Event()) and more"
    ),
    "if torch.cuda.is_available():\n    context = torch.cuda.amp.autocast()": (
        "if _gpu.is_available():\n    context = _gpu.autocast()"
    ),
    "if torch.cuda.is_available():\n    print(torch.version.cuda)": (
        "if _gpu.is_available():\n    print(torch.version.cuda)"
    ),
    "if torch.cuda.is_available():\n    is_11 = torch.version.cuda == '11.0'": (
        "if _gpu.is_available():\n    is_11 = torch.version.cuda == '11.0'"
    ),
    # The first question stays a question for CUDA, although the import has changed.
    "from torch.cuda import is_available as ok\nif ok():\n    torch.cuda.Event()\nprint(ok())": (
        "from k2_mac.gpu import is_available as ok\n"
        "{import}if _gpu.cuda_is_available():\n    torch.cuda.Event()\nprint(ok())"
    ),
    "if torch.cuda.is_available():\n    hip = torch.version.hip is not None": (
        "if _gpu.is_available():\n    hip = torch.version.hip is not None"
    ),
    # The names of arguments and variables decide whether a text is a device.
    'params.device = "cuda"': 'params.device = _gpu.map_device("cuda")',
    'device = other = "cuda"': 'device = other = _gpu.map_device("cuda")',
    'name = "cuda"': None,
    'device: str = "cuda"': 'device: str = _gpu.map_device("cuda")',
    'name: str = "cuda"': None,
    'def f(device="cuda", /, name="cuda"):\n    pass': (
        'def f(device=_gpu.map_device("cuda"), /, name="cuda"):\n    pass'
    ),
    'x = model(target_device="cuda:10")': 'x = model(target_device=_gpu.map_device("cuda:10"))',
    'x = torch.load(path, map_location="cuda")': (
        'x = torch.load(path, map_location=_gpu.map_device("cuda"))'
    ),
    'x = model(mydevice="cuda")': None,
    'x = model(device="cuda_ipc")': None,
    "def f(x=torch.cuda.device_count()):\n    pass": "def f(x=_gpu.device_count()):\n    pass",
    'x = "cuda" if flag else "cpu"': None,
    "import torchaudio\nx = torchaudio.load(path, device=kind)": (
        "import torchaudio\n{import}x = torchaudio.load(path, device=_gpu.map_device(kind))"
    ),
    "import k2.ragged\nx = k2.ctc_graph(labels, device=kind)": (
        "import k2.ragged\n{import}x = k2.ctc_graph(labels, device=_gpu.map_device(kind))"
    ),
    # Tensors, by other attributes than `shape`.
    "y = torch.zeros(x.size(1), device=x.device)": None,
    "y = torch.zeros(3, dtype=x.dtype, device=x.device)": None,
    "y = torch.zeros(x.ndim, device=x.device)": None,
    "y = torch.zeros(x.dim(), device=x.device)": None,
    # A variable or a result may be an array of numpy.
    "x = torch.tensor(values, device=kind)": (
        "x = _gpu.without_float64(torch.tensor, values, device=_gpu.map_device(kind))"
    ),
    'x = torch.as_tensor(self.values, device="cuda")': (
        "x = _gpu.without_float64(torch.as_tensor, self.values, device=_gpu.map_device('cuda'))"
    ),
    'x = torch.tensor(read(), device="cuda")': (
        "x = _gpu.without_float64(torch.tensor, read(), device=_gpu.map_device('cuda'))"
    ),
    'x = torch.tensor([1, 2], device="cuda")': (
        'x = torch.tensor([1, 2], device=_gpu.map_device("cuda"))'
    ),
    'x = torch.tensor(values, dtype=torch.int32, device="cuda")': (
        'x = torch.tensor(values, dtype=torch.int32, device=_gpu.map_device("cuda"))'
    ),
    'x = torch.tensor(data=values, device="cuda")': (
        'x = torch.tensor(data=values, device=_gpu.map_device("cuda"))'
    ),
    "x = torch.tensor(values), x.device": None,
    "from torch import ones\ny = ones(2, dtype=torch.float64)": (
        "from torch import ones\n{import}y = _gpu.without_float64(ones, 2, dtype=torch.float64)"
    ),
    "y = make(2, dtype=torch.float64)": None,
    # Calls with arguments that hide a device, or not.
    "x = torch.zeros(*args), x.device": None,
    "context = torch.autocast(kind, *args)": (
        "context = torch.autocast(_gpu.map_device(kind), *args)"
    ),
    'context = torch.autocast("cpu", kind), x.device': None,
    'x = torch.zeros(2, device="cpu")': None,
    "x = model(device=kind)": None,
    "x = torch.load(path, map_location=kind), y.device": None,
    "x = torch.zeros(2, device=torch.device(kind))": (
        "x = torch.zeros(2, device=_gpu.torch_device(kind))"
    ),
    "y = torch.zeros(f().shape, device=g().device)": (
        "y = torch.zeros(f().shape, device=_gpu.map_device(g().device))"
    ),
    "def f(k2):\n    k2.make(device=kind)": None,
    "torch.is_autocast_enabled(device_type=kind)": (
        "torch.is_autocast_enabled(device_type=_gpu.map_device(kind))"
    ),
    "x = torch.device(0)": "x = _gpu.torch_device(0)",
    "x = torch.device()": "x = _gpu.torch_device()",
    'x = torch.device(type="cpu")': None,
    # Comparisons.
    'if device.type in ["cuda", "cpu"]:\n    pass': (
        "if device.type in ['cuda', 'cpu', 'mps']:\n    pass"
    ),
    'if device.type in {"cuda", other}:\n    pass': (
        "if device.type in {'cuda', other, 'mps'}:\n    pass"
    ),
    'ok = x in ("cuda", "mps", "cuda:0")': None,
    'ok = "cpu" == x == "cuda"': None,
    'ok = "cpu" == "cuda"': None,
    'ok = torch.cuda.get_device_name() == "cuda"': (
        "ok = _gpu.get_device_name() in ('cuda', 'mps')"
    ),
    'ok = "cuda:0" in names': None,
    'ok = "cuda" in "no cuda"': None,
    "x.is_cuda = True": None,
    # A name of torch is one only if its imports say so, and the program gives it no other meaning.
    "from .torch.cuda import is_available": None,
    "from .torch import device\ndevice('cuda')": None,
    # A set has the two meanings, so one name could be right by chance.
    "from torch import device, Generator, autocast, GradScaler, get_autocast_dtype\n"
    "from mine import device, Generator, autocast, GradScaler, get_autocast_dtype\n"
    "device(x), Generator(x), autocast(x), GradScaler(x), get_autocast_dtype(x)": None,
    "from torch import device\ndevice = device('cuda')": None,
    "from torch import device\nclass device:\n    pass\ndevice('cuda')": None,
    "from torch import device\nasync def device(x):\n    pass\ndevice('cuda')": None,
    "from torch import device\ndef device(x):\n    pass\ndevice('cuda')": None,
    # Many programs can do without torch.
    "try:\n    import torch\nexcept ImportError:\n    torch = None\ntorch.cuda.synchronize()": (
        "try:\n    import torch\nexcept ImportError:\n    torch = None\n{import}_gpu.synchronize()"
    ),
    'd.start("nccl")': None,
    'parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])': None,
    'x = torch.device("cpu")': None,
    "model.to(torch.float64)": None,
    "x = x.cuda()": None,
    "y = x.is_cuda()": None,
    '"""torch.cuda.is_available() is not called here."""': None,
    "# torch.cuda.empty_cache()": None,
}
IMPORT = "import k2_mac.gpu as _gpu\n"


def expected_of(form):
    if FORMS[form] is None:
        return f"import torch\n{form}\n"
    if "{import}" in FORMS[form]:
        return f"import torch\n{FORMS[form]}\n".replace("{import}", IMPORT)
    uses = "_gpu" in FORMS[form]
    return f"import torch\n{IMPORT if uses else ''}{FORMS[form]}\n"


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_a_call_changes_or_stays(form):
    changed = rules.change(f"import torch\n{form}\n")
    assert changed.text == expected_of(form)
    assert (changed.tree is None) == (FORMS[form] is None)
    assert bool(changed.kinds) == (FORMS[form] is not None)
    if changed.tree is not None:
        assert ast.dump(ast.parse(changed.text)) == ast.dump(changed.tree)
        compile(changed.tree, "form", "exec")


@pytest.mark.parametrize("form", [form for form in FORMS if FORMS[form] is not None])
def test_a_second_change_changes_nothing_more(form):
    text = rules.change(f"import torch\n{form}\n").text
    again = rules.change(text)
    assert again.text.replace(IMPORT, "") == text.replace(IMPORT, "")


def statements(tree):
    """Returns the places of all statements, but without those that import something."""
    kinds = (ast.Import, ast.ImportFrom)
    return [
        (type(node).__name__, node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and not isinstance(node, kinds)
    ]


def programs_of_torch():
    """Returns about 60 programs of torch, which use CUDA in many ways."""
    folder = pathlib.Path(torch.__file__).parent / "distributed"
    found = sorted(path for path in folder.rglob("*.py") if "cuda" in path.read_text())
    return found[:: max(1, len(found) // 60)]


@pytest.fixture(scope="module")
def changed_programs():
    """Returns the programs_of_torch() that change: (path, source, the Change)."""
    found = []
    for path in programs_of_torch():
        source = path.read_text()
        changed = rules.change(source)
        if changed.tree is not None:
            found.append((path, source, changed))
    assert len(found) >= 30
    return found


def test_the_text_that_is_shown_is_the_program_that_runs(changed_programs):
    for path, _, changed in changed_programs:
        assert ast.dump(ast.parse(changed.text)) == ast.dump(changed.tree), path


def test_a_changed_program_compiles(changed_programs):
    for path, _, changed in changed_programs:
        compile(changed.tree, str(path), "exec")


def test_no_statement_moves(changed_programs):
    for path, source, changed in changed_programs:
        assert statements(changed.tree) == statements(ast.parse(source)), path


def test_a_changed_expression_keeps_its_line_and_columns():
    source = "import torch\n\nx = (1,\n     torch.cuda.device_count())\n"
    tree = rules.change(source).tree
    [call] = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    span = (call.lineno, call.col_offset, call.end_lineno, call.end_col_offset)
    assert span == (4, 5, 4, 30) and ast.unparse(call) == "_gpu.device_count()"


def test_a_part_of_a_changed_expression_keeps_its_line_and_columns():
    tree = rules.change('import torch\nok = (f(\n  x) == "cuda")\n').tree
    [call] = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    span = (call.lineno, call.col_offset, call.end_lineno, call.end_col_offset)
    assert span == (2, 6, 3, 4) and ast.unparse(call) == "f(x)"


@pytest.mark.parametrize("end", ["\r\n", "\r", ""])
def test_line_ends_stay(end):
    source = end.join(["import torch", "torch.cuda.empty_cache()", ""]) if end else "import torch"
    expected = source.replace("torch.cuda.empty", f"{IMPORT}_gpu.empty")
    assert rules.change(source).text == expected


def test_the_import_comes_right_before_the_first_use():
    source = '"""Says what\nit does."""\nimport os\nos.environ["A"] = "1"\nimport torch\n\n'
    use = "@decorated\ndef f():\n    torch.cuda.empty_cache()\n"
    changed = rules.change(source + use)
    assert changed.text == source + IMPORT + use.replace("torch.cuda", "_gpu")
    assert changed.tree.body[-2].lineno == 7


@pytest.mark.parametrize(
    "first", ['"""Says\nwhat."""; import torch', "import torch; x = 1", "import torch; x = (1,\n2)"]
)
def test_the_import_comes_after_another_statement_of_its_line(first):
    changed = rules.change(f"{first}; torch.cuda.empty_cache()\n")
    assert changed.text == f"{first}; {IMPORT.strip()}; _gpu.empty_cache()\n"
    assert ast.dump(ast.parse(changed.text)) == ast.dump(changed.tree)


@pytest.mark.parametrize(
    "own",
    [
        "_gpu = 1",
        "def f(_gpu):\n    pass",
        "def _gpu():\n    pass",
        "import _gpu",
        "import gpu as _gpu",
    ],
)
def test_a_program_keeps_its_own_names(own):
    source = f"import torch\n{own}\nx = {{}}.device_count()\n"
    changed = rules.change(source.format("torch.cuda")).text
    assert changed == source.format("_gpu_").replace("x =", "import k2_mac.gpu as _gpu_\nx =")


def test_a_second_name_may_be_taken_too():
    text = rules.change("import torch\n_gpu = _gpu_ = torch.cuda.device_count()\n").text
    assert text.endswith("_gpu = _gpu_ = _gpu__.device_count()\n")


@pytest.mark.parametrize("count", [300, 3000, 100_000])
@pytest.mark.parametrize(
    "nested",
    [
        lambda count: "(" * count + ")" * count,
        lambda count: "+".join("1" * count),
        lambda count: "-" * count + "1",
    ],
)
def test_a_deep_program_changes_or_stays(nested, count):
    source = f"import torch\ntorch.cuda.empty_cache()\nx = {nested(count)}\n"
    try:
        changed = rules.change(source)
    except SyntaxError:
        return  # Python cannot run the program
    if changed.tree is None:
        assert [note.kind for note in changed.notes] == ["deep"]
    else:
        assert "_gpu.empty_cache()" in changed.text


NOTES = {
    "stream = torch.cuda.Stream()": ("cuda", 2, "torch.cuda.Stream"),
    "from torch.cuda import Stream": ("cuda", 2, "torch.cuda.Stream"),
    "from torch.cuda.amp import common": ("cuda", 2, "torch.cuda.amp.common"),
    "torch.cuda.nvtx.range_push('x')": ("cuda", 2, "torch.cuda.nvtx.range_push"),
    "\nif torch.cuda.is_available():\n    torch.cuda.get_device_properties(0)": (
        "off",
        3,
        "torch.cuda.get_device_properties",
    ),
    "x = y.double().to(device)": ("float64", 2, ".double"),
    "x = y.to(torch.float64)": ("float64", 2, "y.to"),
    "x = f(y).to(torch.float64)": ("float64", 2, ".to"),
    "x = f(y)(torch.float64)": ("float64", 2, "."),
    "x = torch.arange(3, dtype=torch.double)": ("float64", 2, "torch.arange"),
    "import torch.nn as nn\nloss = nn.CTCLoss(reduction='sum')": ("ctc", 3, "torch.nn.CTCLoss"),
    "import torch.nn.functional as F\nF.ctc_loss(*batch)": (
        "ctc",
        3,
        "torch.nn.functional.ctc_loss",
    ),
    "from lhotse import KaldifeatFbank\nKaldifeatFbank(device)": ("kaldifeat", 3, "KaldifeatFbank"),
}


@pytest.mark.parametrize("program", NOTES)
def test_what_does_not_change_or_is_not_k2s_is_named_with_its_line(program):
    assert rules.change(f"import torch\n{program}\n").notes == [NOTES[program]]
    assert NOTES[program][0] in names.NOTES


# {program: what it is about}; each program names CUDA by one function or value only.
ALONE = {
    **{f"{name}(x)": name for name in names.REPLACED},
    **{f"{name}()": name for name in names.CUDA_BY_DEFAULT},
    **{f"{name}(x)": name for name in (*names.DEVICE_FIRST, "torch.device")},
    **{f"y = torch.ones(2, dtype={name})": name for name in names.FLOAT64},
    "y = torch.ones(2, device = x)": "torch.ones",
    "y = torch.ones(2, device_type = x)": "torch.ones",
}


@pytest.mark.parametrize("program", ALONE)
def test_one_name_of_a_table_is_enough_for_a_change(program):
    """The expression MAY_MATTER, which most programs are tried with first, overlooks none."""
    module, _, function = ALONE[program].rpartition(".")
    imported = f"from {module} import {function}\n{program.replace(ALONE[program], function)}\n"
    renamed = f"import torch as t\n{program.replace('torch.', 't.')}\n"
    for source in (f"import torch\n{program}\n", imported, renamed):
        assert rules.change(source).tree is not None, source


@pytest.mark.parametrize("program", [*names.TORCH_CTC, "lhotse.KaldifeatMfcc()", "x.double()"])
def test_one_name_is_enough_for_a_note(program):
    assert len(rules.change(f"import torch\n{program}\n").notes) == 1


@pytest.mark.parametrize(
    "program",
    [
        "from torch.cuda import amp",
        "from torch.cuda import *",
        "torch.cuda.Event = None",
        "Kaldifeat(x)",
        "x.double(y)",
    ],
)
def test_what_needs_no_note(program):
    assert rules.change(f"import torch\n{program}\n").notes == []


def test_notes_have_the_order_of_their_lines():
    """Python's syntax tree has the condition before the value."""
    program = "import torch\nx = (torch.cuda.Event()\n     if y.double()\n     else z)\n"
    assert [note.line for note in rules.change(program).notes] == [2, 3]


def test_a_condition_that_two_rules_see_is_noted_once():
    program = "import torch\nif torch.cuda.is_available() and torch.cuda.Event():\n    {}\n"
    notes = rules.change(program.format("torch.cuda.Stream()")).notes
    assert [note.kind for note in notes].count("off") == 1


def test_warnings_of_the_parser_are_left_to_python():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        changed = rules.change("import torch\ntorch.cuda.empty_cache()\nx = '\\d'\n")
    assert changed.tree is not None


@pytest.mark.parametrize(
    "program, in_place", [("x = (", False), ("x = (", True), ("k2.rnnt_loss_pruned(", False)]
)
def test_a_program_that_needs_no_change_is_not_parsed(program, in_place):
    assert rules.change(program, in_place).tree is None


def test_the_limits_of_float64_need_no_note():
    assert not rules.change("import torch\ntorch.cuda.synchronize(torch.finfo(torch.double))").notes


# kaldifeat computes only on CUDA or the CPU, even if the model is on mps.
STREAMING = """import torch
from kaldifeat import Fbank, FbankOptions


def decode(model, samples):
    device = model.device
    opts = FbankOptions()
    opts.device = device
    fbank = Fbank(opts)
    return fbank(samples.to(device))
"""


def test_features_of_kaldifeat_are_computed_on_the_cpu_for_a_model_on_mps():
    changes = {
        "\n\ndef decode": f"\n\n{IMPORT}def decode",
        "opts.device = device": "opts.device = _gpu.features_device(device)",
        "fbank(samples.to(device))": "_gpu.features(fbank, samples.to(device))",
    }
    expected = STREAMING
    for old, new in changes.items():
        expected = expected.replace(old, new)
    assert rules.change(STREAMING).text == expected
    member = rules.change(STREAMING.replace("return fbank", "return self.fbank")).text
    assert "    return _gpu.features(self.fbank, samples.to(device))\n" in member
    on_host = STREAMING.replace("= device\n", '= "cpu"\n')
    assert 'opts.device = "cpu"' in rules.change(on_host).text


@pytest.mark.parametrize("line", ["opts.device = x", "fbank(x.device)"])
def test_other_programs_have_names_like_those_for_kaldifeat(line):
    assert rules.change(f"import torch\n{line}\n").tree is None


def test_a_program_that_only_makes_features_by_kaldifeat_stays_on_the_cpu():
    source = "import torch\nfrom lhotse import KaldifeatFbank\n"
    source += 'x = KaldifeatFbank(torch.device("cuda") if torch.cuda.is_available() else None)\n'
    assert rules.change(source).tree is None


TRANSDUCER = """import k2


class Model:
    def forward(self, x):
        logits = self.joiner(x, x, project_input=False)
        return k2.rnnt_loss_pruned(logits=logits.float(), symbols=self.symbols)
"""
SHARED_LOGITS = {
    "used again": ("return k2", "y = logits.sum()\n        return k2"),
    "made by another layer": ("self.joiner(", "self.softmax("),
    "made twice": ("        return", "        logits = self.joiner(x, x)\n        return"),
    "changed before the loss": ("logits.float()", "logits.exp()"),
    "cast to another type": ("logits.float()", "logits.half()"),
    "used by another loss": ("k2.rnnt_loss_pruned", "k2.rnnt_loss_pruned_twice"),
    "given two names": ("logits = self", "logits = y = self"),
    "made by a layer with a similar name": ("self.joiner(", "self.old_joiner("),
    "not made by a call": ("self.joiner(x, x, project_input=False)", "self.joiner"),
    "cast with an argument": ("logits.float()", "logits.float(x)"),
    "the result of a function": ("logits.float()", "logits()"),
    "missing": ("logits=logits.float(), symbols=self.symbols", ""),
}


def test_a_loss_is_made_in_place_only_on_demand():
    expected = TRANSDUCER.replace("k2.rnnt_loss_pruned", "k2.mps.rnnt_loss_pruned_in_place")
    changed = rules.change(TRANSDUCER, in_place=True)
    assert changed.text == expected and ast.dump(ast.parse(expected)) == ast.dump(changed.tree)
    assert rules.change(expected, in_place=True).tree is None
    by_place = ("logits=logits.float(), symbols=", "logits, ")
    assert rules.change(TRANSDUCER.replace(*by_place), in_place=True).text == (
        expected.replace(*by_place)
    )
    assert rules.change(TRANSDUCER).tree is None


@pytest.mark.parametrize("name", SHARED_LOGITS)
def test_a_loss_stays_if_other_code_may_use_its_logits(name):
    old, new = SHARED_LOGITS[name]
    assert TRANSDUCER.count(old) == 1
    assert rules.change(TRANSDUCER.replace(old, new), in_place=True).tree is None
