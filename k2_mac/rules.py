"""Changes a program that was written for CUDA so that it uses the GPU of a Mac.

The rules look at the program's syntax tree.  A call of a known function of torch.cuda becomes a
call of k2_mac.gpu, and a question for "cuda" is also answered for mps.  A changed node keeps the
line and the column of the node that it replaces, so tracebacks and breakpoints show the lines of
the file.  The rules make the same changes in the text, for people who want to read them.
"""

import ast
import collections
import dataclasses
import warnings
from collections.abc import Iterator
from typing import NamedTuple

from .names import (
    CTC,
    CUDA_BY_DEFAULT,
    DEVICE_FIRST,
    HINT,
    OF_LIBRARY,
    OF_TENSORS,
    REPLACED,
    VERSIONS,
    WIDE,
    hides_its_device,
    is_other_device,
    makes_extractor,
    may_convert_float64,
    means_cuda,
    names_device,
    of_mps,
    texts,
)
from .syntax import (
    IN_PLACE,
    LIBRARIES,
    Edit,
    aliases,
    all_names,
    dotted,
    edited,
    end_of,
    is_cuda,
    keyword,
    own_logits,
    start_of,
)


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
    if not HINT.search(source) and not (in_place and IN_PLACE in source):
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


class _Rules(ast.NodeTransformer):
    """Changes the nodes of a program's syntax tree, and collects the same changes of the text."""

    def __init__(self, tree: ast.Module, source: str, in_place: bool):
        self.edits: list[Edit] = []
        self.kinds: collections.Counter = collections.Counter()
        self.notes: list[Note] = []
        self._aliases = aliases(tree)
        # The ids of nodes that ask for CUDA and stay, and of nodes that then never run.
        self._off: set[int] = set()
        self._tensors = {
            dotted(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and node.attr in OF_TENSORS
        }
        self._uses = 0  # how often the changed program names our module
        self._kaldifeat = "kaldifeat" in source.lower()
        # Programs with lhotse's extractors of kaldifeat compute nothing but features.
        extractors = [node for node in ast.walk(tree) if self._kaldifeat and makes_extractor(node)]
        self.notes += [Note("kaldifeat", node.lineno, dotted(node.func)) for node in extractors]
        self.stays = bool(extractors)
        self._in_place = set()
        if in_place:
            functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
            self._in_place = {id(loss) for function in functions for loss in own_logits(function)}
        self._ours = "_gpu"
        if "_gpu" in source:
            names = all_names(tree)
            while self._ours in names:
                self._ours += "_"

    # ---- the parts of a change

    def _name(self, node: ast.AST) -> str:
        """Returns the name of a function of torch or k2 by its module, such as "torch.autocast".

        For other expressions, the result is "".
        """
        first, dot, rest = dotted(node).partition(".")
        whole = self._aliases.get(first)
        return whole + dot + rest if whole else ""

    def _edit(self, kind: str, start: tuple[int, int], end: tuple[int, int], text: str) -> None:
        self.kinds[kind] += 1
        self.edits.append(Edit(start, end, text))

    def _function(self, name: str, old: ast.AST) -> ast.Attribute:
        """Returns the expression `_gpu.name`, with the line and columns of another expression."""
        self._uses += 1
        ours = ast.copy_location(ast.Name(self._ours, ast.Load()), old)
        return ast.copy_location(ast.Attribute(ours, name, ast.Load()), old)

    def _swap(self, old: ast.AST, name: str, kind: str) -> ast.Attribute:
        """Replaces an expression by `_gpu.name`."""
        self._edit(kind, start_of(old), end_of(old), f"{self._ours}.{name}")
        return self._function(name, old)

    def _wrap(self, old: ast.AST, name: str, kind: str) -> ast.Call:
        """Replaces an expression by a call of `_gpu.name` with the expression."""
        self._edit(kind, start_of(old), start_of(old), f"{self._ours}.{name}(")
        self.edits.append(Edit(end_of(old), end_of(old), ")"))
        return ast.copy_location(ast.Call(self._function(name, old), [old], []), old)

    def _whole(self, new: ast.AST, old: ast.AST, kind: str) -> ast.AST:
        """Replaces an expression or a statement by another, which Python writes as text."""
        for node in ast.walk(new):
            if "lineno" in node._attributes and not hasattr(node, "lineno"):
                ast.copy_location(node, old)
        self._edit(kind, start_of(old), end_of(old), ast.unparse(new))
        return new

    def _note(self, kind: str, node: ast.AST, text: str) -> None:
        self.notes.append(Note(kind, node.lineno, text))

    # ---- statements

    def visit_Module(self, node: ast.Module) -> ast.Module:
        body = []
        is_imported = False
        for statement in node.body:
            new = self.visit(statement)
            if self._uses and not is_imported:
                # The program has imported torch before it first uses torch.  So this import does
                # not import torch too early, before the program has set torch's variables.
                body.append(self._import_before(statement))
                is_imported = True
            body += new if isinstance(new, list) else [new]
        node.body = body
        return node

    def _import_before(self, statement: ast.stmt) -> ast.Import:
        """Returns an import of our module, which stands on a line before a statement."""
        decorators = getattr(statement, "decorator_list", ())
        line = min([statement.lineno, *(decorator.lineno for decorator in decorators)])
        ours = ast.copy_location(ast.Import([ast.alias("k2_mac.gpu", self._ours)]), statement)
        ours.lineno = ours.end_lineno = line
        ast.copy_location(ours.names[0], ours)
        self.edits.append(Edit((line, 0), (line, 0), ast.unparse(ours) + "\n"))
        return ours

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | list[ast.AST]:
        if node.level or not (node.module or "").startswith("torch"):
            return node
        ours, others = [], []
        for alias in node.names:
            name = REPLACED.get(f"{node.module}.{alias.name}")
            if name:
                ours.append(
                    ast.alias(name, alias.asname or (alias.name if alias.name != name else None))
                )
            else:
                others.append(alias)
        if node.module in ("torch.cuda", "torch.cuda.amp"):
            for alias in others:
                if alias.name not in ("amp", "*"):
                    self._note("cuda", node, f"{node.module}.{alias.name}")
        if not ours:
            return node
        new = [ast.ImportFrom("k2_mac.gpu", ours, 0)]
        if others:
            new.append(ast.ImportFrom(node.module, others, 0))
        for statement in new:
            for inner in ast.walk(statement):
                if "lineno" in inner._attributes:
                    ast.copy_location(inner, node)
        text = "; ".join(map(ast.unparse, new))
        self._edit(f"import from {node.module}", start_of(node), end_of(node), text)
        return new

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        targets = [dotted(target) for target in node.targets]
        self.generic_visit(node)
        if is_cuda(node.value) and any(names_device(target) for target in targets):
            node.value = self._wrap(node.value, "map_device", '"cuda"')
        elif self._kaldifeat and any(target.endswith("opts.device") for target in targets):
            if not isinstance(node.value, ast.Constant):
                node.value = self._wrap(node.value, "features_device", "kaldifeat's device")
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        self.generic_visit(node)
        if is_cuda(node.value) and names_device(dotted(node.target)):
            node.value = self._wrap(node.value, "map_device", '"cuda"')
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
                    defaults[number] = self._wrap(default, "map_device", '"cuda"')
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
            node.body = self._wrap(node.body, "map_device", '"cuda"')
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
                both = ast.Tuple([cuda, ast.Constant(of_mps(cuda.value))], ast.Load())
                op = ast.In() if isinstance(node.ops[0], ast.Eq) else ast.NotIn()
                new = ast.copy_location(ast.Compare(other, [op], [both]), node)
                return self._whole(new, node, '== "cuda"')
        return node

    def _change_membership(
        self, node: ast.Compare, right: ast.Tuple | ast.List | ast.Set
    ) -> ast.AST:
        """Changes `x in ("cuda", "xpu")` into `x in ("cuda", "xpu", "mps")`."""
        values = [element.value for element in right.elts if is_cuda(element)]
        if not values or any(of_mps(value) in texts(right) for value in values):
            return node
        right.elts += [ast.Constant(of_mps(value)) for value in values]
        return self._whole(node, node, 'in ("cuda", ...)')

    def _change_mention(self, node: ast.Compare, left: ast.AST, right: ast.AST) -> ast.AST:
        """Changes `"cuda" in x` into `_gpu.mentions_gpu(x)`."""
        if not is_cuda(left) or left.value != "cuda" or isinstance(right, ast.Constant):
            return node
        new = ast.Call(self._function("mentions_gpu", node), [right], [])
        if isinstance(node.ops[0], ast.NotIn):
            new = ast.UnaryOp(ast.Not(), new)
        return self._whole(ast.copy_location(new, node), node, '"cuda" in')

    def _asks(self, test: ast.AST) -> list[ast.AST]:
        """Returns the nodes of a condition that ask whether there is CUDA."""
        return [
            node
            for node in ast.walk(test)
            if isinstance(node, (ast.Attribute, ast.Name))
            and self._name(node) == "torch.cuda.is_available"
        ]

    def _keep_off(self, test: ast.AST, guarded: list[ast.AST]) -> None:
        """Lets a question for CUDA be answered by no, if the code after it needs CUDA."""
        asks = self._asks(test)
        missing = [name for node in guarded for name in self._missing(node)] if asks else []
        if missing and id(asks[0]) not in self._off:
            self._off |= {id(node) for node in (*asks, *missing)}
            self._note("off", asks[0], self._name(missing[0]))

    def _missing(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yields the names of torch that need CUDA, in code that a question for CUDA guards.

        These are the names that k2_mac.gpu lacks, and a version that the code takes for a text.
        """
        for inner in ast.walk(node):
            if isinstance(inner, ast.Attribute) and self._lacks(inner):
                yield inner
            elif isinstance(inner, (ast.BinOp, ast.Attribute, ast.Subscript)):
                parts = ast.iter_child_nodes(inner)
                yield from (part for part in parts if self._name(part) in VERSIONS)

    def _lacks(self, node: ast.Attribute) -> bool:
        name = self._name(node)
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
                    self._note("cuda", node, self._name(node))
                return node
            if self._name(node) in CTC:
                self._note("ctc", node, self._name(node))
        self.generic_visit(node)
        if node.attr == "is_cuda" and isinstance(node.ctx, ast.Load):
            new = ast.Call(self._function("is_gpu", node), [node.value], [])
            return self._whole(ast.copy_location(new, node), node, ".is_cuda")
        return node

    def _replaced(self, node: ast.Name | ast.Attribute) -> ast.AST:
        """Replaces the name of a function that k2_mac.gpu or k2.mps has, too.

        Any other expression is returned as it is.
        """
        name = self._name(node)
        if not isinstance(node.ctx, ast.Load) or id(node) in self._off:
            return node
        if id(node) in self._in_place:
            module = ast.Attribute(node.value, "mps", ast.Load())
            new = ast.Attribute(module, "rnnt_loss_pruned_in_place", ast.Load())
            return self._whole(new, node, "k2.rnnt_loss_pruned")
        # Imports of functions change where they stand.
        if name not in REPLACED or isinstance(node, ast.Name):
            return node
        return self._swap(node, REPLACED[name], name)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.JoinedStr:
        # Before Python 3.12, the parser does not give the positions of expressions in f-strings.
        before = len(self.edits)
        self.generic_visit(node)
        if self.edits[before:]:
            self.edits[before:] = [Edit(start_of(node), end_of(node), ast.unparse(node))]
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = self._name(node.func)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "is_cuda":
            return node  # a method
        self._note_float64(node, name)
        # The visit of the arguments may replace names, so these questions come before the visit.
        asks_for_float64 = self._asks_for_float64(node, name)
        is_for_cuda = means_cuda(node, name)
        self.generic_visit(node)
        if is_for_cuda:
            node.func = self._swap(node.func, CUDA_BY_DEFAULT[name], name)
            return node
        if name == "torch.device":
            if not is_other_device(node):
                node.func = self._swap(node.func, "torch_device", name)
            return node
        if name.startswith(("torch.cuda.", "k2_mac.")):
            return node
        if name in DEVICE_FIRST and hides_its_device(node):
            return self._whole(self._with_function(node, "translated"), node, name)
        self._change_devices(node, name)
        if self._kaldifeat and dotted(node.func).split(".")[-1] == "fbank":
            return self._whole(self._with_function(node, "features"), node, "kaldifeat")
        if asks_for_float64 or may_convert_float64(node, name):
            return self._whole(self._with_function(node, "without_float64"), node, "float64")
        return node

    def _asks_for_float64(self, node: ast.Call, name: str) -> bool:
        """Whether a call of a function of torch, or of a method, has `dtype=torch.float64`."""
        dtype = keyword(node, "dtype")
        is_method = isinstance(node.func, ast.Attribute)
        return (
            dtype is not None
            and self._name(dtype.value) in WIDE
            and (name.startswith("torch.") or is_method)
        )

    def _with_function(self, node: ast.Call, name: str) -> ast.Call:
        """Returns a call of `_gpu.name`, whose first argument is the function of a call."""
        return ast.copy_location(
            ast.Call(self._function(name, node.func), [node.func, *node.args], node.keywords), node
        )

    def _change_devices(self, node: ast.Call, name: str) -> None:
        """Changes the arguments of a call that are devices."""
        of_library = name.partition(".")[0] in LIBRARIES
        starts = isinstance(node.func, ast.Attribute) and node.func.attr == "startswith"
        moves = isinstance(node.func, ast.Attribute) and node.func.attr == "to"
        for number, value in enumerate(node.args):
            if is_cuda(value) and starts:
                both = ast.Tuple([value, ast.Constant(of_mps(value.value))], ast.Load())
                new = self._whole(ast.copy_location(both, value), value, 'startswith("cuda")')
                # A tuple as the only argument needs its parentheses.
                node.args[number] = new
            elif is_cuda(value) and (of_library or moves):
                node.args[number] = self._wrap(value, "map_device", '"cuda"')
            elif number == 0 and name in DEVICE_FIRST and self._is_unknown(value):
                node.args[number] = self._wrap(value, "map_device", name)
        for argument in node.keywords:
            if not argument.arg or not names_device(argument.arg):
                continue
            if is_cuda(argument.value):
                argument.value = self._wrap(argument.value, "map_device", '"cuda"')
            elif of_library and argument.arg in OF_LIBRARY and self._is_unknown(argument.value):
                argument.value = self._wrap(argument.value, "map_device", f"{argument.arg}=")

    def _is_unknown(self, node: ast.AST) -> bool:
        """Whether an expression may name CUDA.  The results of our functions do not."""
        if isinstance(node, ast.Call):
            is_ours = dotted(node.func).partition(".")[0] == self._ours
            return not is_ours and not self._name(node.func).startswith("k2_mac.")
        if isinstance(node, ast.Attribute) and node.attr == "device":
            return dotted(node.value) not in self._tensors - {""}
        return not isinstance(node, ast.Constant)

    def _note_float64(self, node: ast.Call, name: str) -> None:
        func = node.func
        values = [*node.args, *(argument.value for argument in node.keywords)]
        if name == "torch.finfo":
            return  # no tensor
        if any(self._name(value) in WIDE for value in values):
            self._note("float64", node, dotted(func) or "." + getattr(func, "attr", ""))
        elif isinstance(func, ast.Attribute) and func.attr == "double" and not values:
            self._note("float64", node, ".double")
