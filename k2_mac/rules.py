"""Changes a program that was written for CUDA so that it uses the GPU of a Mac.

The rules look at the program's syntax tree, and decide what changes.  A call of a known function of
torch.cuda becomes a call of k2_mac.gpu, and a question for "cuda" is also answered for mps.
rewriter.py makes the changes: in the tree, so that tracebacks and breakpoints show the lines of the
file, and in the text, for people who want to read them.
"""

import ast
import collections
import dataclasses
import warnings
from collections.abc import Iterator
from typing import NamedTuple

from .names import (
    CUDA_BY_DEFAULT,
    CUDA_VERSIONS,
    DEVICE_FIRST,
    DEVICE_KEYWORDS,
    FLOAT64,
    MAY_MATTER,
    REPLACED,
    TENSOR_ATTRIBUTES,
    TORCH_CTC,
    constants,
    hides_its_device,
    is_other_device,
    makes_extractor,
    may_convert_float64,
    means_cuda,
    mps_for,
    names_device,
    used_as_texts,
)
from .rewriter import Edit, Rewriter, edited
from .syntax import IN_PLACE, LIBRARIES, dotted, is_cuda, keyword, own_logits


class Note(NamedTuple):
    """Something in a program that a user should know."""

    kind: str  # a key of names.NOTES
    line: int
    text: str  # the expression


@dataclasses.dataclass
class Changed:
    """The result of change()."""

    tree: ast.Module | None  # the changed program; None if nothing changes
    kinds: collections.Counter  # how often each function or expression was changed
    notes: list[Note]
    _source: str
    _edits: list[Edit]

    @property
    def text(self) -> str:
        """The changed program as text."""
        return edited(self._source, self._edits)


def change(source: str, in_place: bool = False) -> Changed:
    """Changes a program.

    Args:
      in_place: whether k2.rnnt_loss_pruned() may write its gradient over the logits.  This applies
        only to a loss whose logits come from a joiner and are not used by other code.
    Raises:
      SyntaxError: the text is not valid Python.
    """
    same = Changed(None, collections.Counter(), [], source, [])
    if not MAY_MATTER.search(source) and not (in_place and IN_PLACE in source):
        return same
    try:
        with warnings.catch_warnings():
            # The parser warns about the program, for example of escapes that Python does not know.
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
        rules = _Rules(tree, source, in_place)
        if rules.stays:
            return dataclasses.replace(same, notes=rules.notes)
        tree = rules.visit(tree)
    # Python raises a MemoryError if the stack of its parser is full.
    except (MemoryError, RecursionError):
        return dataclasses.replace(same, notes=[Note("deep", 1, "the file")])
    found = tree if rules.edits else None
    return Changed(found, rules.kinds, sorted(rules.notes, key=_line), source, rules.edits)


def _line(note: Note) -> int:
    return note.line


class _Rules(Rewriter):
    """Decides which nodes of a program's syntax tree change."""

    def __init__(self, tree: ast.Module, source: str, in_place: bool):
        super().__init__(tree, source)
        self.notes: list[Note] = []
        # The ids of nodes that ask for CUDA and stay, and of nodes that then never run.
        self._off: set[int] = set()
        self._tensors = {
            dotted(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and node.attr in TENSOR_ATTRIBUTES
        }
        self._kaldifeat = "kaldifeat" in source.lower()
        # Programs with lhotse's extractors of kaldifeat compute nothing but features.
        extractors = [node for node in ast.walk(tree) if makes_extractor(node)]
        self.notes += [Note("kaldifeat", node.lineno, dotted(node.func)) for node in extractors]
        self.stays = bool(extractors)
        self._in_place = set()
        if in_place:
            functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
            self._in_place = {id(loss) for function in functions for loss in own_logits(function)}

    def _note(self, kind: str, node: ast.AST, text: str) -> None:
        self.notes.append(Note(kind, node.lineno, text))

    # ---- statements

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | list[ast.AST]:
        if node.level:
            return node
        ours, others = [], []
        for alias in node.names:
            name = REPLACED.get(f"{node.module}.{alias.name}")
            if name:
                known_as = alias.asname or alias.name
                ours.append(ast.alias(name, known_as if known_as != name else None))
            else:
                others.append(alias)
        self._note_imports(node, others)
        if not ours:
            return node
        new = [ast.ImportFrom("k2_mac.gpu", ours, 0)]
        if others:
            new.append(ast.ImportFrom(node.module, others, 0))
        return self.replace_statement(new, node, f"import from {node.module}")

    def _note_imports(self, node: ast.ImportFrom, others: list[ast.alias]) -> None:
        """Notes the names of torch.cuda that an import takes and that k2_mac.gpu lacks."""
        if node.module in ("torch.cuda", "torch.cuda.amp"):
            for alias in others:
                if alias.name not in ("amp", "*"):
                    self._note("cuda", node, f"{node.module}.{alias.name}")

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        targets = [dotted(target) for target in node.targets]
        self.generic_visit(node)
        if is_cuda(node.value) and any(names_device(target) for target in targets):
            node.value = self.wrap(node.value, "map_device", '"cuda"')
        elif self._kaldifeat and any(target.endswith("opts.device") for target in targets):
            if not isinstance(node.value, ast.Constant):
                node.value = self.wrap(node.value, "features_device", "kaldifeat's device")
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        self.generic_visit(node)
        if is_cuda(node.value) and names_device(dotted(node.target)):
            node.value = self.wrap(node.value, "map_device", '"cuda"')
        return node

    def visit_arguments(self, node: ast.arguments) -> ast.arguments:
        self.generic_visit(node)
        plain = [*node.posonlyargs, *node.args]
        for defaults, names in (
            (node.defaults, plain[len(plain) - len(node.defaults) :]),
            (node.kw_defaults, node.kwonlyargs),
        ):
            for number, (default, argument) in enumerate(zip(defaults, names)):
                if is_cuda(default) and names_device(argument.arg):
                    defaults[number] = self.wrap(default, "map_device", '"cuda"')
        return node

    # ---- conditions

    def visit_If(self, node: ast.If) -> ast.If:
        self._keep_off(node.test, node.body)
        return self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.IfExp:
        self._keep_off(node.test, [node.body])
        asks = self._asks(node.test)
        self.generic_visit(node)
        if asks and is_cuda(node.body):
            node.body = self.wrap(node.body, "map_device", '"cuda"')
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.BoolOp:
        if isinstance(node.op, ast.And):
            for number, value in enumerate(node.values[:-1]):
                self._keep_off(value, node.values[number + 1 :])
        return self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) != 1:
            return node
        [op], left, [right] = node.ops, node.left, node.comparators
        if isinstance(op, (ast.Eq, ast.NotEq)):
            return self._change_equality(node, left, right)
        if not isinstance(op, (ast.In, ast.NotIn)):
            return node
        if isinstance(right, (ast.Tuple, ast.List, ast.Set)):
            return self._change_membership(node, right)
        return self._change_mention(node, left, right)

    def _change_equality(self, node: ast.Compare, left: ast.AST, right: ast.AST) -> ast.AST:
        """Changes `x == "cuda"` into `x in ("cuda", "mps")`."""
        for cuda, other in ((right, left), (left, right)):
            if is_cuda(cuda) and not isinstance(other, ast.Constant):
                both = ast.Tuple([cuda, ast.Constant(mps_for(cuda.value))], ast.Load())
                op = ast.In() if isinstance(node.ops[0], ast.Eq) else ast.NotIn()
                new = ast.copy_location(ast.Compare(other, [op], [both]), node)
                return self.replace(new, node, '== "cuda"')
        return node

    def _change_membership(
        self, node: ast.Compare, right: ast.Tuple | ast.List | ast.Set
    ) -> ast.AST:
        """Changes `x in ("cuda", "xpu")` into `x in ("cuda", "xpu", "mps")`."""
        values = [element.value for element in right.elts if is_cuda(element)]
        if not values or any(mps_for(value) in constants(right) for value in values):
            return node
        right.elts += [ast.Constant(mps_for(value)) for value in values]
        return self.replace(node, node, 'in ("cuda", ...)')

    def _change_mention(self, node: ast.Compare, left: ast.AST, right: ast.AST) -> ast.AST:
        """Changes `"cuda" in x` into `_gpu.mentions_gpu(x)`."""
        if not is_cuda(left) or left.value != "cuda" or isinstance(right, ast.Constant):
            return node
        new = ast.Call(self.function("mentions_gpu", node), [right], [])
        if isinstance(node.ops[0], ast.NotIn):
            new = ast.UnaryOp(ast.Not(), new)
        return self.replace(ast.copy_location(new, node), node, '"cuda" in')

    def _asks(self, test: ast.AST) -> list[ast.AST]:
        """Returns the nodes of a condition that ask whether there is CUDA."""
        return [
            node
            for node in ast.walk(test)
            if isinstance(node, (ast.Attribute, ast.Name))
            and self.name(node) == "torch.cuda.is_available"
        ]

    def _keep_off(self, test: ast.AST, guarded: list[ast.AST]) -> None:
        """Lets a question for CUDA be answered by no, if the code after it needs CUDA."""
        asks = self._asks(test)
        missing = [name for node in guarded for name in self._missing(node)] if asks else []
        if missing and id(asks[0]) not in self._off:
            self._off |= {id(node) for node in (*asks, *missing)}
            self._note("off", asks[0], self.name(missing[0]))

    def _missing(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yields the names of torch that need CUDA, in code that a question for CUDA guards.

        These are the names that k2_mac.gpu lacks, and a version that the code takes for a text.
        """
        for inner in ast.walk(node):
            if self._lacks(inner):
                yield inner
            else:
                yield from (
                    part for part in used_as_texts(inner) if self.name(part) in CUDA_VERSIONS
                )

    def _lacks(self, node: ast.AST) -> bool:
        name = self.name(node)
        return (
            name.startswith("torch.cuda.")
            and name not in REPLACED
            and not any(other.startswith(f"{name}.") for other in REPLACED)
        )

    # ---- expressions

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self._replaced(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        replaced = self._replaced(node)
        if replaced is not node:
            return replaced
        if isinstance(node.ctx, ast.Load):
            if self._lacks(node):
                if id(node) not in self._off:
                    self._note("cuda", node, self.name(node))
                return node
            if self.name(node) in TORCH_CTC:
                self._note("ctc", node, self.name(node))
        self.generic_visit(node)
        if node.attr == "is_cuda" and isinstance(node.ctx, ast.Load):
            new = ast.Call(self.function("is_gpu", node), [node.value], [])
            return self.replace(ast.copy_location(new, node), node, ".is_cuda")
        return node

    def _replaced(self, node: ast.Name | ast.Attribute) -> ast.AST:
        """Replaces the name of a function that k2_mac.gpu or k2.mps has, too.

        Any other expression is returned as it is.
        """
        name = self.name(node)
        if not isinstance(node.ctx, ast.Load):
            return node
        if id(node) in self._off:
            # The import of the function has changed, so the name stands for gpu.is_available().
            by_name = isinstance(node, ast.Name) and name == "torch.cuda.is_available"
            return self.swap(node, "cuda_is_available", name) if by_name else node
        if id(node) in self._in_place:
            module = ast.Attribute(node.value, "mps", ast.Load())
            new = ast.Attribute(module, "rnnt_loss_pruned_in_place", ast.Load())
            return self.replace(new, node, "k2.rnnt_loss_pruned")
        # Imports of functions change where they stand.
        if name not in REPLACED or isinstance(node, ast.Name):
            return node
        return self.swap(node, REPLACED[name], name)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = self.name(node.func)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "is_cuda":
            return node  # a method
        self._note_float64(node, name)
        # The visit of the arguments may replace names, so these questions come before the visit.
        asks_for_float64 = self._asks_for_float64(node, name)
        is_for_cuda = means_cuda(node, name)
        self.generic_visit(node)
        if is_for_cuda:
            node.func = self.swap(node.func, CUDA_BY_DEFAULT[name], name)
            return node
        if name == "torch.device":
            if not is_other_device(node):
                node.func = self.swap(node.func, "torch_device", name)
            return node
        if name.startswith(("torch.cuda.", "k2_mac.")):
            return node
        if name in DEVICE_FIRST and hides_its_device(node):
            return self.replace(self._with_function(node, "translated"), node, name)
        self._change_devices(node, name)
        if self._kaldifeat and dotted(node.func).split(".")[-1] == "fbank":
            return self.replace(self._with_function(node, "features"), node, "kaldifeat")
        if asks_for_float64 or may_convert_float64(node, name):
            return self.replace(self._with_function(node, "without_float64"), node, "float64")
        return node

    def _asks_for_float64(self, node: ast.Call, name: str) -> bool:
        """Whether a call of a function of torch, or of a method, has `dtype=torch.float64`."""
        dtype = keyword(node, "dtype")
        is_method = isinstance(node.func, ast.Attribute)
        return (
            dtype is not None
            and self.name(dtype.value) in FLOAT64
            and (name.startswith("torch.") or is_method)
        )

    def _with_function(self, node: ast.Call, name: str) -> ast.Call:
        """Returns a call of `_gpu.name`, whose first argument is the function of a call."""
        return ast.copy_location(
            ast.Call(self.function(name, node.func), [node.func, *node.args], node.keywords), node
        )

    def _change_devices(self, node: ast.Call, name: str) -> None:
        """Changes the arguments of a call that are devices."""
        calls_library = name.partition(".")[0] in LIBRARIES
        starts = isinstance(node.func, ast.Attribute) and node.func.attr == "startswith"
        moves = isinstance(node.func, ast.Attribute) and node.func.attr == "to"
        for number, value in enumerate(node.args):
            if is_cuda(value) and starts:
                both = ast.Tuple([value, ast.Constant(mps_for(value.value))], ast.Load())
                new = self.replace(ast.copy_location(both, value), value, 'startswith("cuda")')
                # A tuple as the only argument needs its parentheses.
                node.args[number] = new
            elif is_cuda(value) and (calls_library or moves):
                node.args[number] = self.wrap(value, "map_device", '"cuda"')
            elif number == 0 and name in DEVICE_FIRST and self._is_unknown(value):
                node.args[number] = self.wrap(value, "map_device", name)
        for argument in node.keywords:
            if not argument.arg or not names_device(argument.arg):
                continue
            value = argument.value
            if is_cuda(value):
                argument.value = self.wrap(value, "map_device", '"cuda"')
            elif calls_library and argument.arg in DEVICE_KEYWORDS and self._is_unknown(value):
                argument.value = self.wrap(value, "map_device", f"{argument.arg}=")

    def _is_unknown(self, node: ast.AST) -> bool:
        """Whether an expression may name CUDA.  The results of our functions do not."""
        if isinstance(node, ast.Call):
            is_ours = dotted(node.func).partition(".")[0] == self.ours
            return not is_ours and not self.name(node.func).startswith("k2_mac.")
        if isinstance(node, ast.Attribute) and node.attr == "device":
            return dotted(node.value) not in self._tensors - {""}
        return not isinstance(node, ast.Constant)

    def _note_float64(self, node: ast.Call, name: str) -> None:
        func = node.func
        values = [*node.args, *(argument.value for argument in node.keywords)]
        if name == "torch.finfo":
            return  # no tensor
        if any(self.name(value) in FLOAT64 for value in values):
            self._note("float64", node, dotted(func) or "." + getattr(func, "attr", ""))
        elif isinstance(func, ast.Attribute) and func.attr == "double" and not values:
            self._note("float64", node, ".double")
