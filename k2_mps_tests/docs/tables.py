"""Generates tables of docs/ from the code.

A page of docs/ may have blocks of this form:

    <!-- k2_mps_tests.docs: NAME -->
    ...
    <!-- end -->

fresh() generates the lines of a block.  The lines are committed, so that readers need not have
the tool.  A test compares the committed lines with the code.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from k2mps.core import errors
from k2mps.core.pins import tomllib
from k2mps.core.project import Project
from k2mps.series import series_file

_BLOCK = re.compile(r"(<!-- k2_mps_tests\.docs: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

# The folder of the tables that the suite `parity` checks.
_TABLES = "k2_mps_tests/parity/"
# The places where an operation runs, {word of operations.toml: words of the page}.
WHERE = {
    "metal": "Metal",
    "aten": "ATen",
    "host": "host in place",
    "either": "Metal if large, else host",
    "cpu": "through the CPU",
    "": "none",
}


def pages(project: Project) -> list[Path]:
    return sorted((project.root / "docs").glob("*.md"))


def fresh(project: Project, page: Path) -> str:
    """Returns the text of a page with newly generated blocks.

    Raises:
      LookupError: the page has a block with an unknown name.
    """

    def replace(match: re.Match) -> str:
        name = match[2]
        if name not in _BLOCKS:
            raise LookupError(f"{page.name} names a block {name!r}, not one of {sorted(_BLOCKS)}")
        return "".join([match[1], *(f"{line}\n" for line in _BLOCKS[name](project)), match[3]])

    return _BLOCK.sub(replace, page.read_text(encoding="utf-8"))


def write(project: Project) -> list[Path]:
    """Writes the pages whose blocks have changed; returns these pages."""
    written = []
    for page in pages(project):
        text = fresh(project, page)
        if text != page.read_text(encoding="utf-8"):
            page.write_text(text, encoding="utf-8")
            written.append(page)
    return written


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns the lines of a table in Markdown."""
    lines = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in (head, *rows)]
    first, *others = (f"| {line} |" for line in lines)
    return [first, "|" + "---|" * len(head), *others]


def _read(project: Project, name: str) -> dict:
    return tomllib.loads((project.root / name).read_text(encoding="utf-8"))


def _operations(project: Project) -> list[str]:
    rows = []
    for row in _read(project, _TABLES + "operations.toml")["operations"]:
        names = [f"`{name}`" for call in row["calls"] for name in call["names"]]
        places = (WHERE[row["on"]], WHERE[row.get("gradient", "")])
        dtypes = ", ".join(row.get("dtypes", ["float32"]))
        rows.append((", ".join(names), *places, dtypes, row.get("limits", "")))
    return _table(("operation", "on mps", "gradient", "dtypes", "limits"), rows)


def _budgets(project: Project) -> list[str]:
    rows = []
    for full_name, entry in _read(project, _TABLES + "budgets.toml").items():
        name, _, how = full_name.partition(", ")
        cells = [
            f"{cost['dispatches']} + {cost['operators']} / {cost['drains']}" if cost else ""
            for passes in (entry["host"], entry.get("metal", entry["host"]))
            for cost in (passes["forward"], passes.get("backward"))
        ]
        rows.append((f"`{name}`" + (f", `{how}`" if how else ""), *cells))
    return _table(
        ("operation", "host: forward", "host: backward", "Metal: forward", "Metal: backward"), rows
    )


class Cost(NamedTuple):
    """The costs of an operation, in nanoseconds, and the names of the units."""

    operation: str
    work: str
    steps: str
    host: float  # for each unit of work, on the host
    step: float  # for each step, in Metal
    call: float  # for each call, in Metal


def _cases(path: Path) -> dict[str, dict[str, str]]:
    """Returns what a file of k2/csrc/mps assigns for each Operation, {Operation: {member: value}}.

    The file has a switch over Operation, whose cases assign values to members.
    """
    text = path.read_text(encoding="utf-8")
    cases = re.findall(r"case Operation::(\w+):\n(.*?)\n *break;", text, re.DOTALL)
    if not cases:
        raise LookupError(f"{path.name} has no case of an Operation")
    return {name: dict(re.findall(r'\.(\w+) = "?([^";]+)"?;', body)) for name, body in cases}


def costs(project: Project) -> list[Cost]:
    """Returns the costs in placement.cc, with the names of calibration.cc."""
    folder = project.patches / "files/k2/csrc/mps"
    names = _cases(folder / "calibration.cc")
    return [
        Cost(
            operation=names[operation]["operation"],
            work=names[operation]["work"],
            steps=names[operation]["steps"],
            host=float(cost["host"]),
            step=float(cost["step"]),
            call=float(cost["call"]),
        )
        for operation, cost in _cases(folder / "placement.cc").items()
    ]


# The functions import k2_mps_tests.agx, because it needs NumPy, which the other tables do not.


def _costs(project: Project) -> list[str]:
    from k2_mps_tests.agx import model

    gpus = ("M1", "M4 Max")
    rows = []
    for cost in costs(project):
        step, call = cost.step / 1000, cost.call / 1000
        host = f"{cost.host:g} ns × {cost.work}"
        times = (model.step(cost.operation, gpu) for gpu in gpus)
        models = [f"{least:.1f} to {most:.1f} µs" for least, most in times]
        metal = f"{step:g} µs × {cost.steps} + {call:g} µs"
        rows.append((f"`{cost.operation}`", host, metal, *models))
    head = ("operation", "the host's estimate", "Metal's estimate")
    return _table((*head, *(f"a step by the model, {gpu}" for gpu in gpus)), rows)


def _registers(project: Project) -> list[str]:
    """Returns the kernels that lack registers, or whose code is large, by Mesa's compiler."""
    from k2_mps_tests.agx import kernels as agx

    rows = []
    for kernel, row in agx.load().items():
        float_kernel = kernel.replace("_half", "").replace("_bfloat", "")
        is_float = float_kernel == kernel
        if is_float and (row.stack or row.code > agx.INSTRUCTION_CACHE):
            cells = (row.threads, row.registers, row.stack, row.threads_of_core)
            size = f"{row.code / 1000:.1f}"
            rows.append((f"`{kernel}`", *map(str, cells), size, f"{row.instructions:,}"))
    head = ("kernel", "threads", "registers", "bytes of memory", "threads of a core", "kB of code")
    return _table((*head, "instructions"), rows)


def _estimates(project: Project) -> list[str]:
    from k2_mps_tests.agx import model

    return _table(*model.table())


def error_kinds() -> list[type]:
    """Returns a class of errors for each exit code, sorted by code."""
    kinds = [
        kind
        for kind in vars(errors).values()
        if inspect.isclass(kind) and isinstance(vars(kind).get("exit_code"), int)
    ]
    codes = {kind.exit_code: kind for kind in reversed(kinds)}
    return [codes[code] for code in sorted(codes)]


def _errors(project: Project) -> list[str]:
    kinds = [(str(kind.exit_code), kind) for kind in error_kinds()]
    kinds.append(("128 + signal", errors.InterruptedRunError))
    rows = [(code, inspect.getdoc(kind).split("\n")[0]) for code, kind in kinds]
    return _table(("exit code", "meaning"), rows)


def _compatibility(project: Project) -> list[str]:
    pin, torch = project.upstream().pin, project.upstream().torch
    rows = [
        ("k2", f"{pin.version}, commit `{pin.commit[:12]}`"),
        ("torch, for `--torch`", ", ".join(torch.supported)),
        ("Python", _read(project, "pyproject.toml")["project"]["requires-python"]),
        ("macOS", "14 or newer, with torch 2.15 15 or newer; Apple Silicon"),
        ("Linux", "x86-64; mps is emulated"),
    ]
    return _table(("", "version"), rows)


def _groups(project: Project) -> list[str]:
    """Returns the groups of patches/series, with the text of the comments that begin them.

    Such a comment is `# NAME: TEXT`, whose text may continue in the next lines.
    """
    order = (project.patches / "series").read_bytes()
    comments = re.findall(r"^# ([\w-]+): (.*(?:\n# .*)*)", order.decode(), re.MULTILINE)
    texts = {name: text.replace("\n# ", " ") for name, text in comments}
    groups = dict.fromkeys(series_file.parse(order)[1].values())
    return _table(("group", "subject"), [(f"`{name}`", texts[name]) for name in groups])


_BLOCKS: Mapping[str, Callable[[Project], list[str]]] = {
    "budgets": _budgets,
    "compatibility": _compatibility,
    "costs": _costs,
    "errors": _errors,
    "estimates": _estimates,
    "groups": _groups,
    "operations": _operations,
    "registers": _registers,
}
