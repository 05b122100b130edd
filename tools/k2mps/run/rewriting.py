"""Rewriting a recipe for CUDA to calls of k2.mps.gpu.

Each known call of CUDA becomes the same call of `k2.mps.gpu`, which has the same effect with CUDA.
LibCST keeps the formatting of all else.  A second rewrite changes nothing.
"""

import io
import itertools
import re
import tokenize

import libcst as cst
from libcst import matchers as m

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
_WIDE = ("torch.double", "torch.float64")

_CUDA = m.SimpleString(m.MatchRegex(r"""["']cuda(:0)?["']"""))
_ON_CUDA = m.Attribute(attr=m.Name("is_cuda"))
_OF_CUDA = m.Attribute(m.Attribute(m.Name("torch"), m.Name("cuda")))
_AVAILABLE = m.Call(m.Attribute(_OF_CUDA.value, m.Name("is_available")))
_OURS = m.Attribute(m.Name("gpu"))
_LEFT = _ON_CUDA | _OF_CUDA | _CUDA | m.SimpleString(m.MatchRegex("[\"']nccl[\"']"))
_LEFT_TEXT = re.compile(r"""torch\.cuda\.|\.is_cuda\b|["'](cuda(:0)?|nccl)["']""")
_KALDIFEAT = "computes features with kaldifeat, on CUDA or the CPU"


def rewrite(source: str) -> tuple[str, str]:
    """A program with the known calls rewritten, and what in it still needs CUDA, or "".

    Raises:
      ValueError: the text is no Python, or has a name `gpu` already.
    """
    if not _HINT.search(source):
        return source, ""
    try:
        tree = cst.parse_module(source)
    except cst.ParserSyntaxError as error:
        raise ValueError(f"no Python, {error.message.splitlines()[0]}") from error
    first = rewriter = _Rewriter(source)
    changed = _rewritten(tree, first)
    if first.odd:
        # kaldifeat's features are for the device of the model, which stays as it is.
        rewriter = _Rewriter(source, with_devices=False)
        changed = _rewritten(tree, rewriter)
    if rewriter.found and "from k2.mps import gpu" not in source:
        if _names_gpu(source):
            raise ValueError("it has a name `gpu` of its own")
        changed = _with_import(changed)
    code = changed.code
    if first.odd or not _LEFT_TEXT.search(code):
        return code, _KALDIFEAT if first.odd else ""
    found = {changed.code_for_node(node) for node in m.findall(changed, _LEFT)}
    return code, f"still needs CUDA for {', '.join(sorted(found))}" if found else ""


def _rewritten(tree: cst.Module, rewriter: cst.CSTTransformer) -> cst.Module:
    """A module with those statements rewritten that need it: to visit all takes minutes."""
    return tree.with_changes(
        body=[
            statement.visit(rewriter) if _HINT.search(tree.code_for_node(statement)) else statement
            for statement in tree.body
        ]
    )


class _Rewriter(cst.CSTTransformer):
    """Rewrites a module.

    Attributes:
      found: whether it calls `gpu` then.
      odd: whether kaldifeat computes features of a device in an unknown way.
    """

    def __init__(self, source: str, with_devices: bool = True):
        super().__init__()
        self._with_devices = with_devices
        self._kaldifeat = "kaldifeat" in source.lower()
        self._wide = bool(re.search(rf"dtype=({'|'.join(_WIDE)}), *device=", source))
        self.found = self.odd = self._on_host = False

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        return not _name(node)

    def leave_Attribute(self, node, new):
        name = _RENAMED.get(_name(node))
        return self._gpu(name) if name else new

    def leave_ImportFrom(self, node, new):
        if node.module is None or _name(node.module) != "torch.cuda.amp":
            return new
        if isinstance(node.names, cst.ImportStar):
            return new
        known = {alias.name.value for alias in node.names} <= {*_MIXED}
        return new.with_changes(module=cst.parse_expression("k2.mps.gpu")) if known else new

    def leave_Param(self, node, new):
        if node.name.value in ("device", "device_type") and m.matches(node, m.Param(default=_CUDA)):
            return new.with_changes(default=self._call("device_type"))
        return new

    def leave_Arg(self, node, new):
        wide = self._wide and _name(node.value) in _WIDE
        return new.with_changes(value=self._call("double")) if wide else new

    def leave_Call(self, node, new):
        name = _name(node.func)
        for_cuda = bool(node.args) and m.matches(node.args[0].value, _CUDA)
        if name == "torch.is_autocast_enabled" and not node.args:
            return self._call("is_autocast_enabled")
        if name in ("torch.autocast", "torch.amp.autocast", "torch.amp.GradScaler") and for_cuda:
            return self._call(name.rpartition(".")[2], new.args[1:])
        if name == "torch.device" and for_cuda and self._with_devices:
            return self._call("pick_device", new.args[1:])
        if name == "fbank" and self._kaldifeat:
            return self._features(new)
        self.odd |= name.startswith("Kaldifeat")
        return new

    def _features(self, call: cst.Call) -> cst.Call:
        """A call of kaldifeat: on the device of its options, and with the result on the model's."""
        moved = call.args[0].value
        if not m.matches(moved, m.Call(m.Attribute(attr=m.Name("to")), [m.Arg()])):
            self.odd |= not self._on_host
        elif self._with_devices and _name(moved.args[0].value) != "opts.device":
            place = cst.Arg(cst.parse_expression("opts.device"))
            features = call.with_changes(args=[cst.Arg(moved.with_changes(args=[place]))])
            return moved.with_changes(func=cst.Attribute(features, cst.Name("to")))
        return call

    def leave_Assign(self, node, new):
        device = _name(node.value)
        if not self._kaldifeat or _name(node.targets[0].target) != "opts.device":
            return new
        self._on_host = m.matches(node.value, m.SimpleString())
        if not device or not self._with_devices:
            return new
        choice = f'"cpu" if {device}.type == "mps" else {device}'
        return new.with_changes(value=cst.parse_expression(choice))

    def leave_If(self, node, new):
        if m.matches(node.test, _AVAILABLE) and m.findall(new.body, _OURS):
            if not m.findall(new.body, _OF_CUDA):
                return new.with_changes(test=self._call("is_available"))
        return new

    def leave_IfExp(self, node, new):
        if self._with_devices and m.matches(node, m.IfExp(_AVAILABLE, _CUDA, m.SimpleString())):
            return cst.Call(cst.Name("str"), [cst.Arg(self._call("pick_device"))])
        return new

    def leave_BooleanOperation(self, node, new):
        if m.matches(new, m.BooleanOperation(_ON_CUDA, m.And())) and m.findall(new.right, _OURS):
            device = cst.Attribute(new.left.value, cst.Name("device"))
            kind = cst.ComparisonTarget(cst.Equal(), self._call("device_type"))
            left = cst.Comparison(cst.Attribute(device, cst.Name("type")), [kind])
            return new.with_changes(left=left)
        return new

    def _gpu(self, name: str) -> cst.Attribute:
        self.found = True
        return cst.Attribute(cst.Name("gpu"), cst.Name(name))

    def _call(self, name: str, arguments=()) -> cst.Call:
        return cst.Call(self._gpu(name), arguments)


def _name(node: cst.CSTNode) -> str:
    """The dotted name that an expression is, or ""."""
    if isinstance(node, cst.Attribute):
        first = _name(node.value)
        return f"{first}.{node.attr.value}" if first else ""
    return node.value if isinstance(node, cst.Name) else ""


def _names_gpu(source: str) -> bool:
    """Whether a program has a name `gpu`, other than that of an attribute."""
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    return any(
        (token.type, token.string) == (tokenize.NAME, "gpu") and before.string != "."
        for before, token in itertools.pairwise(tokens)
    )


def _with_import(tree: cst.Module) -> cst.Module:
    """Imports `gpu` behind the first import of torch, or of anything."""
    torch = m.SimpleStatementLine([m.Import([m.ImportAlias(m.Name("torch"), None)])])
    for kind in (torch, m.SimpleStatementLine([m.Import() | m.ImportFrom()])):
        for place, statement in enumerate(tree.body, 1):
            if m.matches(statement, kind):
                line = cst.parse_statement("from k2.mps import gpu")
                return tree.with_changes(body=[*tree.body[:place], line, *tree.body[place:]])
    raise ValueError("it imports nothing")
