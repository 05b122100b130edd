"""Writes the list of aten operators that torch's mps device has on a Mac.

    python mps_operators.py native_functions.yaml OUTPUT

torchgen reads the native_functions.yaml of the installed torch.  An operator has an mps kernel if
its `dispatch` table names MPS, or if the operator belongs to a structured group and the table of
the group's out= variant names MPS.  OUTPUT becomes a C++ file with two arrays of names,
kMpsOperators and kSparseMpsOperators.
"""

import pathlib
import sys

from torchgen.gen import get_grouped_native_functions, parse_native_yaml
from torchgen.model import DispatchKey, NativeFunctionsGroup

# torch registers these operators in its C++ code, not through native_functions.yaml.  On a Mac
# these operators run on the CPU.
_BY_HAND = {"embedding_renorm_", "linalg_svd", "linalg_svd.U"}


def read(path: pathlib.Path) -> tuple[set[str], set[str]]:
    """Returns two sets of names of operators.

    The first set has the operators with mps kernels for dense tensors.  The second set has the
    operators with mps kernels for sparse tensors.

    The first set leaves out the operators that the CPU computes by calling other operators.
    Autograd differentiates these calls, because the CPU has no backward pass for such an operator
    itself.  On a Mac, the mps kernel of such an operator only saves time: the calls give the same
    results.
    """
    parsed = parse_native_yaml(str(path), str(path.with_name("tags.yaml")))
    mps = set(_BY_HAND)
    for group in get_grouped_native_functions(parsed.native_functions):
        functions, shared = [group], []
        if isinstance(group, NativeFunctionsGroup):
            functions, shared = group.functions(), [group.out] if group.structured else []
        for function in functions:

            def has(key):
                kernels = parsed.backend_indices[key]
                return any(map(kernels.has_kernel, [function, *shared]))

            composite = has(DispatchKey.CompositeImplicitAutograd) and not has(DispatchKey.CPU)
            if has(DispatchKey.MPS) and not composite:
                mps.add(str(function.func.name))
    sparse = parsed.backend_indices[DispatchKey.SparseMPS]
    return mps, {str(f.func.name) for f in parsed.native_functions if sparse.has_kernel(f)}


def _array(name: str, operators: set[str]) -> str:
    rows = "".join(f'    "{operator}",\n' for operator in sorted(operators))
    return f"constexpr const char *{name}[] = {{\n{rows}}};\n"


def main() -> None:
    source, output = map(pathlib.Path, sys.argv[1:])
    mps, sparse = read(source)
    output.write_text(
        "// Written by mps_operators.py; do not edit.\n"
        + _array("kMpsOperators", mps)
        + _array("kSparseMpsOperators", sparse)
    )


if __name__ == "__main__":
    main()
