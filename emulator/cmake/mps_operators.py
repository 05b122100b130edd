"""Writes the list of aten operators that torch's mps device has on a Mac.

    python mps_operators.py native_functions.yaml OUTPUT

The list is derived from the native_functions.yaml that the installed torch packages
(torchgen/packaged/ATen/native), by torchgen's own rules: an operator has an mps kernel if its
`dispatch` table names MPS, or if its `structured_delegate` does (the functional and in-place
variants of a structured operator run the kernel of the out= variant).  OUTPUT becomes a C++ file
with two arrays of names, kMpsOperators and kSparseMpsOperators.

The script reads the file's regular lines without a YAML parser, so that the build needs no package
beyond torch.  check() refuses a file that the script misunderstands.
"""

import re
import sys

# torch registers these operators by hand, not through native_functions.yaml.  On a Mac they run
# on the CPU.
_BY_HAND = ["embedding_renorm_", "linalg_svd", "linalg_svd.U"]


class Operator:
    """One `- func:` entry."""

    def __init__(self, signature: str):
        self.name = signature.split("(", 1)[0].strip()
        self.delegate = ""
        self.structured = False
        self.kernels: dict[str, str] = {}  # dispatch key -> kernel


def read(lines: list[str]) -> dict[str, Operator]:
    """The operators of a native_functions.yaml, by name."""
    operators: dict[str, Operator] = {}
    current = None
    in_dispatch = False
    for line in lines:
        line = re.sub(r"(^|\s)#.*", "", line.rstrip())
        if not line.strip():
            continue
        if line.startswith("- func:"):
            current = Operator(line[len("- func:") :])
            operators[current.name] = current
            in_dispatch = False
        elif re.match(r"  \w", line):
            key, _, value = line.strip().partition(":")
            in_dispatch = key == "dispatch"
            if key == "structured_delegate":
                current.delegate = value.strip()
            elif key == "structured":
                current.structured = value.strip().lower() == "true"
        elif in_dispatch and re.match(r"    \w", line):
            keys, _, kernel = line.strip().partition(":")
            for key in keys.split(","):
                current.kernels[key.strip()] = kernel.strip()
    return operators


def with_key(operators: dict[str, Operator], key: str) -> list[str]:
    """The operators that have a kernel for a dispatch key, sorted.

    The list leaves out operators that the CPU composes of others, together with
    their autograd.  An mps kernel of such an operator is only a shortcut, whose
    backward the CPU lacks; the composite gives the same results.
    """

    def has(operator, wanted):
        delegate = operators.get(operator.delegate)
        return wanted in operator.kernels or (delegate is not None and wanted in delegate.kernels)

    return sorted(
        operator.name
        for operator in operators.values()
        if has(operator, key)
        and not (has(operator, "CompositeImplicitAutograd") and not has(operator, "CPU"))
    )


def check(operators: dict[str, Operator], mps: list[str]) -> None:
    """Refuses a file that read() misunderstood."""
    dangling = [o.name for o in operators.values() if o.delegate and o.delegate not in operators]
    landmarks = {"add.Tensor", "add.out", "add_.Tensor", "mm", "sort.stable"}
    if len(operators) < 2000 or dangling or not landmarks <= set(mps):
        raise SystemExit(
            "mps_operators.py: native_functions.yaml does not look as "
            f"expected: {len(operators)} operators, {len(mps)} with an mps "
            f"kernel, unknown delegates {dangling[:3]}. The torch version may "
            "be newer than this script."
        )


def _array(name: str, operators: list[str]) -> str:
    rows = "".join(f'    "{operator}",\n' for operator in operators)
    return f"constexpr const char *{name}[] = {{\n{rows}}};\n"


def main() -> None:
    source, output = sys.argv[1:]
    with open(source, encoding="utf-8") as file:
        operators = read(file.readlines())
    # native_functions.yaml lists sparse kernels one by one, without delegation.
    mps = sorted(with_key(operators, "MPS") + _BY_HAND)
    sparse = sorted(o.name for o in operators.values() if "SparseMPS" in o.kernels)
    check(operators, mps)
    text = (
        "// Written by mps_operators.py; do not edit.\n"
        + _array("kMpsOperators", mps)
        + _array("kSparseMpsOperators", sparse)
    )
    with open(output, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    main()
