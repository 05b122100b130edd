"""Rewrites a recipe that was written for CUDA, so that the recipe calls k2_mac.gpu.

Each known call of torch.cuda becomes a call of a function of `k2_mac.gpu`.  On a machine with CUDA,
this function has the same effect as torch's function.  Python's own parser finds the expressions to
rewrite.  The rewrite changes only these expressions, and adds an import.  A second rewrite changes
nothing.
"""

import ast
import bisect
import re
import warnings
from typing import NamedTuple

# An extended regular expression for git grep.  A program without a match needs no rewriting.
HINT = (
    r"cuda|nccl|ctc_loss|autocast|torch\.double|torch\.float64|fbank|Kaldifeat"
    r"|device_ids=|mp\.spawn"
)
# A regular expression like HINT, for programs that change only if `in_place` is set.
IN_PLACE = r"k2\.rnnt_loss_pruned"

_CALLS = (
    *("amp.autocast", "amp.GradScaler", "amp.custom_fwd", "amp.custom_bwd", "memory_reserved"),
    *("max_memory_allocated", "memory_allocated", "reset_peak_memory_stats", "empty_cache"),
    *("synchronize", "is_bf16_supported", "set_device"),
)
_RENAMED = {
    **{f"torch.cuda.{name}": name.removeprefix("amp.") for name in _CALLS},
    "torch.get_autocast_gpu_dtype": "get_autocast_dtype",
    # torch has a kernel for CTC on mps only since 2.14.
    "torch.nn.functional.ctc_loss": "ctc_loss",
    "F.ctc_loss": "ctc_loss",
    "mp.spawn": "spawn",
}
# These calls are renamed only if they have no arguments, or if the first argument names CUDA.
_FOR_CUDA = {
    "torch.is_autocast_enabled": "is_autocast_enabled",
    "torch.autocast": "autocast",
    "torch.amp.autocast": "autocast",
    "torch.amp.GradScaler": "GradScaler",
    "torch.device": "pick_device",
}
_WIDE = ("torch.double", "torch.float64")
_AMP = "torch.cuda.amp"
_BYTE_ORDER_MARK = "\ufeff"
_OURS = "from k2_mac import gpu"


class _Edit(NamedTuple):
    """Replaces the bytes from `start` to `end` (not included) of the program by a text."""

    start: int
    end: int
    text: bytes


def rewrite(source: str, in_place: bool = False) -> tuple[str, str]:
    """Rewrites the known calls of a program.

    Args:
      in_place: whether k2.rnnt_loss_pruned() may write its gradient over the logits.  This applies
        only to a loss whose logits come from a joiner and are not used by other code.
    Returns:
      The new program; and a message about calls that still need CUDA, or "".
    Raises:
      SyntaxError: the text is not valid Python.
      ValueError: the program uses the name `gpu` already, or computes features with kaldifeat in an
        unknown way, or is nested too deeply.
    """
    text = source.removeprefix(_BYTE_ORDER_MARK)
    try:
        code, needs = _rewrite(text, in_place)
        return source[: len(source) - len(text)] + code, needs
    # Python raises a MemoryError if the stack of its parser is full.
    except (MemoryError, RecursionError):
        raise ValueError("its expressions are nested too deeply") from None


def _rewrite(source: str, in_place: bool) -> tuple[str, str]:
    with warnings.catch_warnings():
        # The parser warns about the recipe, for example of escapes that Python does not know.
        warnings.simplefilter("ignore")
        tree = ast.parse(source)
    rewriter = _Rewriter(tree, source)
    rewriter.visit(tree)
    edits = rewriter.edits
    if in_place:
        edits += rewriter.text.losses_in_place(tree)
    if any(edit.text.startswith(b"gpu.") or b"(gpu." in edit.text for edit in edits):
        if _OURS not in source:
            if re.search(r"\bgpu\b", source) and "gpu" in _names(tree):
                raise ValueError("it uses the name `gpu` already")
            edits.append(rewriter.text.import_of_ours(tree))
    left = ", ".join(sorted(rewriter.left()))
    return rewriter.text.changed(edits), f"still needs CUDA for {left}" if left else ""


def _names(tree: ast.Module) -> set[str]:
    """Returns the names that a program uses or binds, except the names of attributes."""
    kinds = ("id", "arg", "name", "asname")
    names = (getattr(node, kind, None) for node in ast.walk(tree) for kind in kinds)
    return {name for name in names if isinstance(name, str)}


def _name_of(node: ast.AST) -> str:
    """Returns the expression as text if it is a dotted name, such as a.b.c; otherwise ""."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def _is_cuda(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and node.value in ("cuda", "cuda:0")


def _is_backend(call: ast.Call, argument: ast.AST) -> bool:
    """Whether an argument of a call chooses NCCL as the backend of torch.distributed."""
    value = _value(argument)
    is_start = _name_of(call.func).split(".")[-1] == "init_process_group"
    return is_start and isinstance(value, ast.Constant) and value.value == "nccl"


def _is_available(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _name_of(node.func) == "torch.cuda.is_available"


def _arguments(call: ast.Call) -> list[ast.AST]:
    """Returns the arguments of a call in the order of the text."""
    arguments = [*call.args, *call.keywords]
    return sorted(arguments, key=lambda one: (one.lineno, one.col_offset))


def _value(argument: ast.AST) -> ast.AST:
    return argument.value if isinstance(argument, ast.keyword) else argument


class _Text:
    """A program's bytes, and where each node of the syntax tree is in these bytes."""

    def __init__(self, source: str):
        self.bytes = source.encode()
        self._starts = [0]
        # bytes.splitlines() splits at the same line ends as Python's parser; str.splitlines() would
        # split at other characters, too.
        for line in self.bytes.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def start(self, node: ast.AST) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.AST) -> int:
        return self._starts[node.end_lineno - 1] + node.end_col_offset

    def of(self, node: ast.AST) -> bytes:
        return self.bytes[self.start(node) : self.end(node)]

    def lines_with(self, pattern: str) -> list[int]:
        """Returns the numbers of the lines, from 1, in which matches of a pattern begin."""
        matches = re.finditer(pattern.encode(), self.bytes)
        return [bisect.bisect_right(self._starts, match.start()) for match in matches]

    def import_of_ours(self, tree: ast.Module) -> _Edit:
        """Returns the edit that imports k2_mac.gpu.

        The import comes after the last import; without imports, after the docstring; without a
        docstring, before the first statement.
        """
        ended = b"\r\n" if b"\r\n" in self.bytes else b"\n"
        kinds = (ast.Import, ast.ImportFrom)
        last = next((node for node in reversed(tree.body) if isinstance(node, kinds)), None)
        if last is None and ast.get_docstring(tree, clean=False) is not None:
            last = tree.body[0]
        if last is None:
            first = tree.body[0]
            at = min([first, *getattr(first, "decorator_list", ())], key=self.start)
            start = self._starts[at.lineno - 1]
            return _Edit(start, start, _OURS.encode() + ended)
        # Other statements may be on the same line, after a semicolon.
        same = [node for node in tree.body if node.lineno <= last.end_lineno]
        start = self._starts[max(node.end_lineno for node in same)]
        if not self.bytes[:start].endswith((b"\n", b"\r")):
            return _Edit(start, start, ended + _OURS.encode())
        return _Edit(start, start, _OURS.encode() + ended)

    def losses_in_place(self, tree: ast.Module) -> list[_Edit]:
        """Returns the edits that make losses overwrite logits that no other code uses."""
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        losses = [loss for one in functions for loss in _losses_with_own_logits(one)]
        return [
            _Edit(self.start(loss), self.end(loss), b"k2.mps.rnnt_loss_pruned_in_place")
            for loss in losses
        ]

    def changed(self, edits: list[_Edit]) -> str:
        """Makes the edits, and returns the new program; ignores an edit inside another edit."""
        parts, at = [], 0
        # If two edits begin at the same byte, an insertion comes before a replacement, and a longer
        # replacement before a shorter one.
        for edit in sorted(edits, key=lambda one: (one.start, one.end > one.start, -one.end)):
            if edit.start >= at:
                parts += [self.bytes[at : edit.start], edit.text]
                at = edit.end
        return b"".join([*parts, self.bytes[at:]]).decode()


class _Rewriter:
    """Visits the nodes of a program's syntax tree, inner nodes first, and collects the edits."""

    def __init__(self, tree: ast.Module, source: str):
        self.text = _Text(source)
        self.edits: list[_Edit] = []
        self._cuda: list[tuple[int, int, str]] = []  # (start, end, text) of each use of CUDA
        self._hinted = self.text.lines_with(rf"{HINT}|opts\.device")
        self._wide = bool(re.search(rf"dtype=({'|'.join(_WIDE)}), *device=", source))
        self._spawns = bool(re.search(r"torch(\.| import )multiprocessing as mp\b", source))
        self._kaldifeat = "kaldifeat" in source.lower()
        if self._kaldifeat:
            on_host = 'opts.device = "cpu"' in source
            for node in ast.walk(tree):
                if _computes_features(node) and not _is_known(node, on_host):
                    raise ValueError("it computes features with kaldifeat, on CUDA or the CPU")

    def left(self) -> set[str]:
        """Returns the text of each use of CUDA that no edit replaces."""
        return {
            text
            for start, end, text in self._cuda
            if not any(edit.start <= start and end <= edit.end for edit in self.edits)
        }

    def visit(self, node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.JoinedStr):
                self._formatted(child)
            elif not isinstance(child, ast.stmt) or self._has_hint(child):
                self.visit(child)
        look = getattr(self, f"_{type(node).__name__}", None)
        if look:
            look(node)

    def _has_hint(self, node: ast.stmt) -> bool:
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
        at = bisect.bisect_left(self._hinted, first)
        return at < len(self._hinted) and self._hinted[at] <= node.end_lineno

    def _replace(self, node: ast.AST, text: str | bytes) -> None:
        text = text.encode() if isinstance(text, str) else text
        self.edits.append(_Edit(self.text.start(node), self.text.end(node), text))

    def _needs_cuda(self, node: ast.AST, text: str) -> None:
        self._cuda.append((self.text.start(node), self.text.end(node), text))

    def _ours_only(self, start: int, end: int) -> bool:
        """Whether, after the edits, a part of the program calls k2_mac.gpu but not torch.cuda."""
        ours = [one for one in self.edits if start <= one.start and one.end <= end]
        left = [
            text
            for first, last, text in self._cuda
            if start <= first and last <= end and text.startswith("torch.cuda.")
            if not any(one.start <= first and last <= one.end for one in ours)
        ]
        return any(b"gpu." in one.text for one in ours) and not left

    def _formatted(self, node: ast.JoinedStr) -> None:
        """Edits the names in an f-string.

        Before Python 3.12, the parser does not give the positions of expressions in f-strings.  So
        this method searches for the names in the text.
        """
        inner = [_name_of(one) for one in ast.walk(node) if isinstance(one, ast.Attribute)]
        content = self.text.of(node)
        for name in dict.fromkeys(inner):
            new = _RENAMED.get(name)
            matches = list(re.finditer(rf"(?<![\w.]){re.escape(name)}\b".encode(), content))
            if new and len(matches) == inner.count(name):
                at = self.text.start(node)
                for match in matches:
                    where = (at + match.start(), at + match.end())
                    self.edits.append(_Edit(*where, f"gpu.{new}".encode()))
            elif name.startswith("torch.cuda.") and name.count(".") == 2 and not new:
                self._needs_cuda(node, name)
            elif new or name.endswith(".is_cuda"):
                self._needs_cuda(node, name)

    def _Constant(self, node: ast.Constant) -> None:
        if _is_cuda(node) or node.value == "nccl":
            self._needs_cuda(node, f'"{node.value}"')

    def _Attribute(self, node: ast.Attribute) -> None:
        name = _name_of(node)
        if name in _RENAMED and (name != "mp.spawn" or self._spawns):
            self._replace(node, f"gpu.{_RENAMED[name]}")
        elif node.attr == "is_cuda" or _name_of(node.value) == "torch.cuda":
            self._needs_cuda(node, ast.unparse(node))

    def _ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.module == _AMP and not node.level:
            start = self.text.bytes.find(_AMP.encode(), self.text.start(node), self.text.end(node))
            if start >= 0:
                self.edits.append(_Edit(start, start + len(_AMP), b"k2_mac.gpu"))

    def _arguments(self, node: ast.arguments) -> None:
        plain = [*node.posonlyargs, *node.args]
        pairs = [*zip(plain[len(plain) - len(node.defaults) :], node.defaults)]
        for argument, default in (*pairs, *zip(node.kwonlyargs, node.kw_defaults)):
            if argument.arg in ("device", "device_type") and _is_cuda(default):
                self._replace(default, "gpu.device_type()")

    def _Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "cuda":
            self._needs_cuda(node, ast.unparse(node.func))
        name = _FOR_CUDA.get(_name_of(node.func))
        arguments = _arguments(node)
        if name and (not arguments or _is_cuda(_value(arguments[0]))):
            self._replace(node.func, f"gpu.{name}")
            if arguments:
                # The first argument is deleted, up to the next argument or to the closing
                # parenthesis of the call.
                end = self.text.start(arguments[1]) if arguments[1:] else self.text.end(node) - 1
                self.edits.append(_Edit(self.text.start(arguments[0]), end, b""))
            arguments = arguments[1:]
        for argument in arguments:
            value = _value(argument)
            if self._wide and _name_of(value) in _WIDE:
                self._replace(value, "gpu.double()")
            elif getattr(argument, "arg", None) == "device_type" and _is_cuda(value):
                self._replace(value, "gpu.device_type()")
            elif getattr(argument, "arg", None) == "device_ids":
                self._device_ids(value)
            elif _is_backend(node, argument):
                self._replace(value, "gpu.dist_backend()")
        if self._kaldifeat and _is_moved(node):
            [model] = node.args[0].args
            self._replace(model, "opts.device")
            end = self.text.end(node)
            self.edits.append(_Edit(end, end, b".to(" + self.text.of(model) + b")"))

    def _device_ids(self, value: ast.AST) -> None:
        """Edits DistributedDataParallel's argument device_ids if it lists the index of one device.

        On a Mac, which has one device, the program then uses that device's index in all processes.
        """
        if isinstance(value, ast.List) and len(value.elts) == 1:
            [index] = value.elts
            if name := _name_of(index):
                self._replace(index, f"gpu.pick_device({name}).index")

    def _Assign(self, node: ast.Assign) -> None:
        plain = isinstance(node.value, (ast.Name, ast.Attribute))
        if self._kaldifeat and plain and [_name_of(one) for one in node.targets] == ["opts.device"]:
            at = self.text.of(node.value).decode()
            self._replace(node.value, f'"cpu" if {at}.type == "mps" else {at}')

    def _If(self, node: ast.If) -> None:
        body = (self.text.start(node.body[0]), self.text.end(node.body[-1]))
        if _is_available(node.test) and self._ours_only(*body):
            self._replace(node.test, "gpu.is_available()")

    def _IfExp(self, node: ast.IfExp) -> None:
        if not _is_available(node.test):
            return
        other = isinstance(node.orelse, ast.Constant) and isinstance(node.orelse.value, str)
        if _is_cuda(node.body) and other:
            self._replace(node, "str(gpu.pick_device())")
        elif self._ours_only(self.text.start(node.body), self.text.end(node.body)):
            self._replace(node.test, "gpu.is_available()")

    def _BoolOp(self, node: ast.BoolOp) -> None:
        if not isinstance(node.op, ast.And):
            return
        for number, value in enumerate(node.values[:-1]):
            rest = (self.text.start(node.values[number + 1]), self.text.end(node))
            if isinstance(value, ast.Attribute) and value.attr == "is_cuda":
                if self._ours_only(*rest):
                    of = self.text.of(value.value).decode()
                    self._replace(value, f"{of}.device.type == gpu.device_type()")


# ---- losses whose logits no other code uses


def _losses_with_own_logits(function: ast.FunctionDef) -> list[ast.AST]:
    """Finds, in a function, the calls of k2.rnnt_loss_pruned whose logits no other code uses.

    In `function`, a joiner's result must be assigned to a name that only the loss uses.

    Returns:
      The nodes of the names `k2.rnnt_loss_pruned` in these calls.
    """
    calls = []
    nodes = list(ast.walk(function))
    for call in nodes:
        if not isinstance(call, ast.Call) or _name_of(call.func) != "k2.rnnt_loss_pruned":
            continue
        logits = [one.value for one in call.keywords if one.arg == "logits"] or call.args[:1]
        name = logits and _name_of(_without_cast(logits[0]))
        uses = [node for node in nodes if isinstance(node, ast.Name) and node.id == name]
        makers = [
            node.value
            for node in nodes
            if isinstance(node, ast.Assign) and [_name_of(one) for one in node.targets] == [name]
        ]
        if len(uses) == 2 and len(makers) == 1 and isinstance(makers[0], ast.Call):
            if _name_of(makers[0].func).split(".")[-1] == "joiner":
                calls.append(call.func)
    return calls


def _without_cast(node: ast.AST) -> ast.AST:
    """Returns x for the expression `x.float()`, and any other expression as it is."""
    is_cast = (
        isinstance(node, ast.Call)
        and not node.args
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "float"
    )
    return node.func.value if is_cast else node


# ---- kaldifeat, which computes features only on the CPU or CUDA.  A rewritten program computes the
# features on the device of kaldifeat's options, and moves them to the model's device.


def _computes_features(node: ast.AST) -> bool:
    name = _name_of(node.func) if isinstance(node, ast.Call) else ""
    return bool(re.fullmatch(r"fbank|Kaldifeat\w*", name))


def _is_moved(node: ast.Call) -> bool:
    """Whether a call is `fbank(x.to(y))`, with a y that is not `opts.device`."""
    if _name_of(node.func) != "fbank" or len(node.args) != 1 or node.keywords:
        return False
    [inner] = node.args
    if not isinstance(inner, ast.Call) or not isinstance(inner.func, ast.Attribute):
        return False
    moved = inner.func.attr == "to" and len(inner.args) == 1 and not inner.keywords
    return moved and _name_of(inner.args[0]) != "opts.device"


def _is_known(node: ast.Call, on_host: bool) -> bool:
    return _name_of(node.func) == "fbank" if on_host else _is_moved(node)
