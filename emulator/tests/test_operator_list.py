"""The list of operators that mps has on a Mac (cmake/mps_operators.py)."""

import importlib.util
import pathlib

import pytest
import torchgen

EMULATOR = pathlib.Path(__file__).resolve().parent.parent
NATIVE = pathlib.Path(torchgen.__file__).parent / "packaged/ATen/native"


@pytest.fixture(scope="module")
def script():
    specification = importlib.util.spec_from_file_location(
        "mps_operators", EMULATOR / "cmake" / "mps_operators.py"
    )
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def operators(script):
    with open(NATIVE / "native_functions.yaml", encoding="utf-8") as file:
        return script.read(file.readlines())


def test_agrees_with_torchgen(script, operators):
    """The list equals the list of torchgen's own parser and model."""
    from torchgen.gen import get_grouped_native_functions, parse_native_yaml
    from torchgen.model import DispatchKey, NativeFunctionsGroup

    parsed = parse_native_yaml(str(NATIVE / "native_functions.yaml"), str(NATIVE / "tags.yaml"))
    indices = parsed.backend_indices

    def has(function, key):
        return indices[key].has_kernel(function)

    mps, composite = set(), set()
    for group in get_grouped_native_functions(parsed.native_functions):
        if isinstance(group, NativeFunctionsGroup):
            functions = list(group.functions())
            delegates = [group.out] if group.structured else []
        else:
            functions, delegates = [group], []
        for function in functions:
            name = str(function.func.name)
            kernels = [function, *delegates]
            if any(has(f, DispatchKey.MPS) for f in kernels):
                mps.add(name)
            if has(function, DispatchKey.CompositeImplicitAutograd) and not any(
                has(f, DispatchKey.CPU) for f in kernels
            ):
                composite.add(name)

    assert set(script.with_key(operators, "MPS")) == mps - composite
    sparse = {str(f.func.name) for f in parsed.native_functions if has(f, DispatchKey.SparseMPS)}
    assert {o.name for o in operators.values() if "SparseMPS" in o.kernels} == sparse


def test_structured_operators_count_with_all_their_variants(script, operators):
    mps = script.with_key(operators, "MPS")
    for name in ("add.Tensor", "add.out", "add_.Tensor", "sort.values_stable"):
        assert name in mps
    for name in ("frexp.Tensor", "special_airy_ai", "special_airy_ai.out", "linear"):
        assert name not in mps


def test_a_file_of_another_kind_is_refused(script, tmp_path):
    operators = script.read(["- func: add(Tensor a) -> Tensor\n"])
    with pytest.raises(SystemExit, match="does not look as expected"):
        script.check(operators, script.with_key(operators, "MPS"))
