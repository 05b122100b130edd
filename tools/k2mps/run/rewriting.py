"""Rewriting a recipe for CUDA to calls of k2.mps.gpu.

Each known call of CUDA becomes the same call of `k2.mps.gpu`, which has the same effect with CUDA.
Python's own parser tells where the calls are; all else keeps its bytes.  A second rewrite changes
nothing.
"""

import ast
import re
from collections.abc import Sequence

# Text without one of these needs no rewriting.
_HINT = re.compile(r"cuda|nccl|ctc_loss|autocast|torch\.double|fbank|Kaldifeat")

_MIXED = ("autocast", "GradScaler", "custom_fwd", "custom_bwd")
_CALLS = (
    *("max_memory_allocated", "memory_allocated", "memory_reserved", "reset_peak_memory_stats"),
    *("empty_cache", "synchronize", "is_bf16_supported"),
)
_RENAMED = {
    **{f"torch.cuda.amp.{name}": name for name in _MIXED},
    **{f"torch.cuda.{name}": name for name in _CALLS},
    "torch.get_autocast_gpu_dtype": "get_autocast_dtype",
    # Before 2.14, torch has no kernel for CTC on mps.
    "torch.nn.functional.ctc_loss": "ctc_loss",
    "F.ctc_loss": "ctc_loss",
}
# Calls whose first argument is "cuda".
_OF_A_DEVICE = {
    "torch.autocast": "autocast",
    "torch.amp.autocast": "autocast",
    "torch.amp.GradScaler": "GradScaler",
    "torch.device": "pick_device",
}
# Calls that make float64 on the model's device.
_WIDE = re.compile(r"dtype=torch\.(double|float64), *device=")
_DOUBLE = ("torch.double", "torch.float64")
_AVAILABLE = "torch.cuda.is_available()"
# Where kaldifeat computes features.
_PLACE = "opts.device"
_KALDIFEAT = "computes features with kaldifeat, on CUDA or the CPU"


def rewrite(source: str) -> tuple[str, str]:
    """A program with the known calls rewritten, and what in it still needs CUDA, or "".

    Raises:
      ValueError: the text is no Python, or has a name `gpu` already.
    """
    if not _HINT.search(source):
        return source, ""
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise ValueError(f"no Python, {error}") from error
    nodes = list(ast.walk(tree))
    kaldifeat = "kaldifeat" in source.lower()
    odd = kaldifeat and _has_odd_features(nodes)
    edits = _Edits(source)
    wide = _WIDE.search(source)
    for node in reversed(nodes):  # the parts of a node before the node
        _rewrite(node, edits, with_devices=not odd)
        if wide:
            _narrow(node, edits)
        if kaldifeat and not odd:
            _rewrite_features(node, edits)
    if edits.use_gpu and "from k2.mps import gpu" not in source:
        if any("gpu" in map(vars(node).get, ("id", "arg", "name", "asname")) for node in nodes):
            raise ValueError("it has a name `gpu` of its own")
        edits.add_import(tree.body)
    code = edits.code()
    if odd:
        return code, _KALDIFEAT
    left = filter(_needs_cuda, ast.walk(ast.parse(code)))
    found = sorted({str(ast.get_source_segment(code, node)) for node in left})
    return code, f"still needs CUDA for {', '.join(found)}" if found else ""


class _Edits:
    """The edits of a program, by places in its bytes."""

    def __init__(self, source: str):
        self._content = source.encode()
        self._lines = [0]  # where each begins
        for line in self._content.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._found: list[tuple[int, int, str]] = []  # begin, end, new text
        self._replaced: set[ast.AST] = set()
        self.use_gpu = False  # whether the program calls `gpu` then

    def code(self) -> str:
        """The program after the edits."""
        parts, place = [], 0
        for begin, end, text in sorted(self._found):
            parts += [self._content[place:begin], text.encode()]
            place = end
        return b"".join([*parts, self._content[place:]]).decode()

    def place(self, node: ast.AST) -> tuple[int, int]:
        begin = self._lines[node.lineno - 1] + node.col_offset
        return begin, self._lines[node.end_lineno - 1] + node.end_col_offset

    def add(self, begin: int, end: int, text: str) -> None:
        self._found.append((begin, end, text))

    def replace(self, node: ast.AST, text: str) -> None:
        begin, end = self.place(node)
        # Before Python 3.12, the parser misplaces some expressions of f-strings.
        if isinstance(node, ast.Attribute) and _name(node) != self._content[begin:end].decode():
            raise ValueError(f"line {node.lineno}: a place in an f-string is not known")
        self.add(begin, end, text)
        self._replaced.update(ast.walk(node))
        self.use_gpu |= "gpu." in text

    def calls_gpu(self, nodes: Sequence[ast.AST]) -> bool:
        """Whether these nodes call `gpu` after the edits, and no longer torch.cuda."""
        inner = [one for node in nodes for one in ast.walk(node)]
        left = (one for one in inner if one not in self._replaced)
        return not any(map(_is_of_cuda, left)) and any(
            one in self._replaced or _name(one) == "gpu" for one in inner
        )

    def add_import(self, body: Sequence[ast.stmt]) -> None:
        """Imports `gpu` behind the first import of torch, or of anything."""
        imports = [node for node in body if isinstance(node, (ast.Import, ast.ImportFrom))]
        if not imports:
            raise ValueError("it imports nothing")
        of_torch = (node for node in imports if ast.unparse(node) == "import torch")
        line = next(of_torch, imports[0]).end_lineno
        begin, end = self._lines[line - 1 : line + 1]
        last = self._content[begin:end].decode()
        self.add(end, end, "from k2.mps import gpu" + last[len(last.rstrip()) :])


def _rewrite(node: ast.AST, edits: _Edits, with_devices: bool) -> None:
    match node:
        case ast.Attribute() if name := _RENAMED.get(_name(node)):
            edits.replace(node, f"gpu.{name}")
        case ast.ImportFrom("torch.cuda.amp", names) if {one.name for one in names} <= {*_MIXED}:
            begin = edits.place(node)[0] + len("from ")
            edits.add(begin, begin + len("torch.cuda.amp"), "k2.mps.gpu")
        case ast.arguments(positional, more):
            last = [*positional, *more][::-1]
            pairs = [*zip(last, node.defaults[::-1]), *zip(node.kwonlyargs, node.kw_defaults)]
            for argument, default in pairs:
                if argument.arg in ("device", "device_type") and _is_cuda(default):
                    edits.replace(default, "gpu.device_type()")
        case ast.Call(func, []) if _name(func) == "torch.is_autocast_enabled":
            edits.replace(func, "gpu.is_autocast_enabled")
        case ast.Call(func, [first, *others]) if _is_cuda(first):
            name = _OF_A_DEVICE.get(_name(func))
            if name and (with_devices or name != "pick_device"):
                edits.replace(func, f"gpu.{name}")
                begin, end = edits.place(first)
                rest = [*others, *node.keywords]
                edits.add(begin, edits.place(rest[0])[0] if rest else end, "")
        case ast.If(test, body) if ast.unparse(test) == _AVAILABLE and edits.calls_gpu(body):
            edits.replace(test, "gpu.is_available()")
        case ast.IfExp(test, first, ast.Constant(str())) if ast.unparse(test) == _AVAILABLE:
            if with_devices and _is_cuda(first):
                edits.replace(node, "str(gpu.pick_device())")
        case ast.BoolOp(ast.And(), [ast.Attribute(tensor, "is_cuda") as first, *others]):
            if edits.calls_gpu(others):
                kind = f"{ast.unparse(tensor)}.device.type"
                edits.replace(first, f"{kind} == gpu.device_type()")


def _narrow(node: ast.AST, edits: _Edits) -> None:
    match node:
        case ast.keyword("dtype", kind) | ast.Call(ast.Attribute(attr="to"), [kind]):
            if _name(kind) in _DOUBLE:
                edits.replace(kind, "gpu.double()")


def _rewrite_features(node: ast.AST, edits: _Edits) -> None:
    """kaldifeat computes on CUDA or the CPU, and the features are for the model's device."""
    match node:
        case ast.Assign([target], ast.Name() | ast.Attribute() as device) if (
            _name(target) == _PLACE
        ):
            name = _name(device)
            edits.replace(device, f'"cpu" if {name}.type == "mps" else {name}')
        case ast.Call(ast.Name("fbank"), [ast.Call(ast.Attribute(attr="to"), [device])]):
            if _name(device) != _PLACE:
                edits.replace(device, _PLACE)
                end = edits.place(node)[1]
                edits.add(end, end, f".to({ast.unparse(device)})")


def _has_odd_features(nodes: Sequence[ast.AST]) -> bool:
    """Whether kaldifeat computes features of a device in an unknown way."""
    direct = on_host = False
    for node in nodes:
        match node:
            case ast.Call(func) if _name(func).startswith("Kaldifeat"):
                return True
            case ast.Call(ast.Name("fbank"), [ast.Call(ast.Attribute(attr="to"), [_])]):
                pass
            case ast.Call(ast.Name("fbank")):
                direct = True
            case ast.Assign([target], ast.Constant(str())) if _name(target) == _PLACE:
                on_host = True
    return direct and not on_host


def _needs_cuda(node: ast.AST) -> bool:
    match node:
        case ast.Constant("nccl") | ast.Attribute(attr="is_cuda"):
            return True
    return _is_cuda(node) or _is_of_cuda(node)


def _name(node: ast.AST) -> str:
    """The dotted name that an expression is, or ""."""
    return ast.unparse(node) if isinstance(node, (ast.Attribute, ast.Name)) else ""


def _is_cuda(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and node.value in ("cuda", "cuda:0")


def _is_of_cuda(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and _name(node.value) == "torch.cuda"
