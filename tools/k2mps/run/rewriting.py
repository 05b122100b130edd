"""Rewriting a recipe for CUDA to calls of k2.mps.gpu.

Each known call of CUDA becomes the same call of `k2.mps.gpu`, which has the same effect with CUDA.
LibCST keeps the formatting of all else.  A second rewrite changes nothing.
"""

import re

import libcst as cst
from libcst import matchers as m
from libcst.helpers import get_full_name_for_node as name_of
from libcst.helpers import parse_template_expression as parsed

# An extended regular expression for git: programs that it does not match need no rewriting.
HINT = r"cuda|nccl|ctc_loss|autocast|torch\.double|torch\.float64|fbank|Kaldifeat"

_CALLS = (
    *("amp.autocast", "amp.GradScaler", "amp.custom_fwd", "amp.custom_bwd", "memory_reserved"),
    *("max_memory_allocated", "memory_allocated", "reset_peak_memory_stats", "empty_cache"),
    *("synchronize", "is_bf16_supported"),
)
_RENAMED = {
    **{f"torch.cuda.{name}": name.removeprefix("amp.") for name in _CALLS},
    "torch.get_autocast_gpu_dtype": "get_autocast_dtype",
    # Before 2.14, torch has no kernel for CTC on mps.
    "torch.nn.functional.ctc_loss": "ctc_loss",
    "F.ctc_loss": "ctc_loss",
}
# Renamed where the first argument is CUDA, or there is none.
_FOR_CUDA = {
    "torch.is_autocast_enabled": "is_autocast_enabled",
    "torch.autocast": "autocast",
    "torch.amp.autocast": "autocast",
    "torch.amp.GradScaler": "GradScaler",
    "torch.device": "pick_device",
}
_WIDE = ("torch.double", "torch.float64")

_CUDA = m.SimpleString(m.MatchRegex(r"""["']cuda(:0)?["']"""))
_ON_CUDA = m.Attribute(attr=m.Name("is_cuda"))
_OF_CUDA = m.Attribute(m.Attribute(m.Name("torch"), m.Name("cuda")))
_AVAILABLE = m.Call(m.Attribute(_OF_CUDA.value, m.Name("is_available")))
_OURS = m.Attribute(m.Name("gpu"))
_LEFT = _ON_CUDA | _OF_CUDA | _CUDA | m.SimpleString(m.MatchRegex("[\"']nccl[\"']"))
_IMPORT = m.SimpleStatementLine([m.Import() | m.ImportFrom()])

# kaldifeat computes features on the CPU or CUDA: where its options say, for the model's device.
_PLACE = m.Attribute(m.Name("opts"), m.Name("device"))
_PLACED = m.Assign([m.AssignTarget(_PLACE)], m.Name() | m.Attribute())
_FEATURES = m.Call(m.Name(m.MatchRegex("fbank|Kaldifeat.*")))
_TO = m.Call(m.Attribute(attr=m.Name("to")), [m.Arg(~_PLACE)])
_MOVED = m.Call(m.Name("fbank"), [m.Arg(_TO)])


def rewrite(source: str) -> tuple[str, str]:
    """A program with the known calls rewritten, and what in it still needs CUDA, or "".

    Raises:
      ParserSyntaxError: the text is no Python.
      ValueError: the text has a name `gpu` already, or lets kaldifeat compute features of a
        device in an unknown way.
    """
    tree = cst.parse_module(source)
    changed = tree.visit(_Rewriter(tree, source))
    code = changed.code
    ours = "from k2.mps import gpu"
    if code != source and ours not in source and "gpu." in code:
        named = m.findall(tree, m.Name("gpu")) if re.search(r"\bgpu\b", source) else []
        if named and len(named) > len(m.findall(tree, m.Attribute(attr=m.Name("gpu")))):
            raise ValueError("it has a name `gpu` of its own")
        body = list(changed.body)
        last = max((at for at, part in enumerate(body) if m.matches(part, _IMPORT)), default=-1)
        body.insert(last + 1, cst.parse_statement(ours))
        code = changed.with_changes(body=body).code
    left = m.findall(changed, _LEFT) if re.search("cuda|nccl", code) else []
    needs = ", ".join(sorted({tree.code_for_node(node) for node in left}))
    return code, needs and f"still needs CUDA for {needs}"


class _Rewriter(cst.CSTTransformer):
    """Rewrites the statements of a module, unless kaldifeat uses a device in an unknown way."""

    def __init__(self, tree: cst.Module, source: str):
        super().__init__()
        self._wide = bool(re.search(rf"dtype=({'|'.join(_WIDE)}), *device=", source))
        self._kaldifeat = "kaldifeat" in source.lower()
        known = m.Call(m.Name("fbank")) if 'opts.device = "cpu"' in source else _MOVED
        if self._kaldifeat and not all(m.matches(x, known) for x in m.findall(tree, _FEATURES)):
            raise ValueError("it computes features with kaldifeat, on CUDA or the CPU")

    def leave_Attribute(self, node, new):
        name = _RENAMED.get(name_of(node))
        return parsed(f"gpu.{name}") if name else new

    def leave_ImportFrom(self, node, new):
        if name_of(node.module) == "torch.cuda.amp":
            return new.with_changes(module=cst.parse_expression("k2.mps.gpu"))
        return new

    def leave_Param(self, node, new):
        if m.matches(node, m.Param(m.Name("device") | m.Name("device_type"), default=_CUDA)):
            return new.with_changes(default=parsed("gpu.device_type()"))
        return new

    def leave_Arg(self, node, new):
        wide = self._wide and name_of(node.value) in _WIDE
        return new.with_changes(value=parsed("gpu.double()")) if wide else new

    def leave_Call(self, node, new):
        name = _FOR_CUDA.get(name_of(node))
        if name and (not node.args or m.matches(node.args[0].value, _CUDA)):
            return new.with_changes(func=parsed(f"gpu.{name}"), args=new.args[1:])
        if self._kaldifeat and m.matches(node, _MOVED):
            moved = new.args[0].value
            parts = {"at": moved.func.value, "model": moved.args[0].value}
            return parsed("fbank({at}.to(opts.device)).to({model})", **parts)
        return new

    def leave_Assign(self, node, new):
        if self._kaldifeat and m.matches(node, _PLACED):
            choice = '"cpu" if {at}.type == "mps" else {at}'
            return new.with_changes(value=parsed(choice, at=new.value))
        return new

    def leave_If(self, node, new):
        if m.matches(node.test, _AVAILABLE) and m.findall(new.body, _OURS):
            if not m.findall(new.body, _OF_CUDA):
                return new.with_changes(test=parsed("gpu.is_available()"))
        return new

    def leave_IfExp(self, node, new):
        known = m.matches(node, m.IfExp(_AVAILABLE, _CUDA, m.SimpleString()))
        return parsed("str(gpu.pick_device())") if known else new

    def leave_BooleanOperation(self, node, new):
        if m.matches(new, m.BooleanOperation(_ON_CUDA, m.And())) and m.findall(new.right, _OURS):
            kind = parsed("{x}.device.type == gpu.device_type()", x=new.left.value)
            return new.with_changes(left=kind)
        return new
