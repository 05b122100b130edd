"""Questions about the syntax tree of a program, for rules.py."""

import ast
import re

# The packages whose functions take a device as the argument `device`.
LIBRARIES = ("torch", "torchaudio", "k2")
_CUDA = re.compile(r"cuda(?::\d+)?")
# A program without this function has no loss that can be computed in place.
IN_PLACE = "k2.rnnt_loss_pruned"


def dotted(node: ast.AST) -> str:
    """Returns the expression as text if it is a dotted name, such as a.b.c; otherwise ""."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def is_cuda(node: ast.AST | None) -> bool:
    """Whether an expression is the text "cuda" or "cuda:N"."""
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return is_text and bool(_CUDA.fullmatch(node.value))


def keyword(call: ast.Call, name: str) -> ast.keyword | None:
    return next((argument for argument in call.keywords if argument.arg == name), None)


def aliases(tree: ast.Module) -> dict[str, str]:
    """Returns the names that a program's imports give to modules and functions of torch and k2.

    A name with two meanings is left out.
    """
    meanings = {}
    bound = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                whole = alias.name if alias.asname else alias.name.partition(".")[0]
                meanings.setdefault(alias.asname or whole, set()).add(whole)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                meanings.setdefault(alias.asname or alias.name, set()).add(whole)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound.add(node.id)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bound.add(node.name)
    found = {
        name: meaning
        for name, (meaning, *others) in meanings.items()
        if not others and meaning.partition(".")[0] in (*LIBRARIES, "k2_mac") and name not in bound
    }
    return {"torch": "torch", **found}


def all_names(tree: ast.Module) -> set[str]:
    """Returns all names in a program, except the names of attributes."""
    kinds = ("id", "arg", "name", "asname")
    names = (getattr(node, kind, None) for node in ast.walk(tree) for kind in kinds)
    return {name for name in names if isinstance(name, str)}


# ---- losses whose logits no other code uses


def own_logits(function: ast.FunctionDef) -> list[ast.AST]:
    """Finds, in a function, the calls of k2.rnnt_loss_pruned whose logits no other code uses.

    In `function`, a joiner's result must be assigned to a name that only the loss uses.

    Returns:
      The nodes of the names `k2.rnnt_loss_pruned` in these calls.
    """
    calls = []
    nodes = list(ast.walk(function))
    for call in nodes:
        if not isinstance(call, ast.Call) or dotted(call.func) != IN_PLACE:
            continue
        given = keyword(call, "logits")
        logits = [given.value] if given else call.args[:1]
        name = logits and dotted(_without_cast(logits[0]))
        uses = [node for node in nodes if isinstance(node, ast.Name) and node.id == name]
        makers = [
            node.value
            for node in nodes
            if isinstance(node, ast.Assign)
            and [dotted(target) for target in node.targets] == [name]
        ]
        if len(uses) == 2 and len(makers) == 1 and isinstance(makers[0], ast.Call):
            if dotted(makers[0].func).split(".")[-1] == "joiner":
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
