"""The functions of AIR that implement the functions of Metal's library."""

import re

_SIGNATURE = re.compile(
    r"(?:[\w ]+ )?metal::(?P<space>(?:fast|precise)::)?(?P<name>\w+)(?:<[^>]*>)?\((?P<types>.*)\)"
)
# The attributes that Apple's compiler gives to functions of AIR.
MATHEMATICS = "mustprogress nofree nosync nounwind willreturn"
ATOMIC = "mustprogress nounwind willreturn"
CONVERGENT = "convergent mustprogress nounwind willreturn"
# {type of C++: its name in AIR}.
_TYPES = {
    "float": "f32",
    "half": "f16",
    "int": "s.i32",
    "unsigned int": "u.i32",
    "long": "s.i64",
    "unsigned long": "u.i64",
}
_LLVM = {"f32": "float", "f16": "half", "i32": "i32", "i64": "i64"}
# Functions of the library for which Apple's compiler writes instructions of LLVM.
_INSTRUCTIONS = ("select", "isnan", "isinf", "operator|", "all")
# Functions whose names in AIR do not contain the type's sign.
_UNSIGNED = ("clz", "ctz", "popcount", "load", "store", "xchg")
_SHUFFLES = ("shuffle", "shuffle_xor", "shuffle_up", "shuffle_down", "broadcast")
# The functions of numbers that AIR is known to have.
_NUMBER_FUNCTIONS = (
    "abs",
    "clamp",
    "clz",
    "ctz",
    "exp",
    "fabs",
    "floor",
    "fma",
    "fmax",
    "fmin",
    "frexp",
    "log",
    "max",
    "min",
    "popcount",
    "rint",
    "tanh",
    *("simd_" + name for name in (*_SHUFFLES, "max", "min", "or", "sum")),
    "simd_prefix_exclusive_sum",
    "simd_prefix_inclusive_sum",
)


def in_air(function: str) -> tuple[str, str] | None:
    """Returns the function of AIR for a function of Metal's library.

    Args:
      function: the C++ function with its parameters, as c++filt prints it.
    Returns:
      The name in AIR and the type of LLVM; or None if Apple's compiler writes instructions.
    Raises:
      ValueError, KeyError: this module does not know the function, or a type of its parameters.
    """
    match = _SIGNATURE.fullmatch(function)
    if match is None:
        if re.match(r"(_ZN5metal6select|.*metal::operator\|)", function):
            return None
        raise ValueError(function)
    name, space = match["name"], match["space"] or ""
    if name in _INSTRUCTIONS:
        return None
    types = match["types"].split(", ")
    if name == "threadgroup_barrier":
        return "air.wg.barrier", "void (i32, i32)"
    if name == "simdgroup_barrier":
        return "air.simdgroup.barrier", "void (i32, i32)"
    if name == "atomic_thread_fence":
        return "air.atomic.fence", "void (i32, i32, i32)"
    if found := re.fullmatch(r"atomic_(?:fetch_)?(\w+)_explicit", name):
        return _atomic(found[1], types)
    if name == "simd_ballot":
        return "air.simd_ballot.i64", "i64 (i1)"
    if name in ("simd_all", "simd_any"):
        return f"air.{name}", "i1 (i1)"
    if name not in _NUMBER_FUNCTIONS:
        raise ValueError(function)
    return _number_function(name, "fast_" if space == "fast::" else "", types)


def _number_function(name, prefix, types):
    """Returns the name and the type of a function that takes a number or a vector first."""
    vector = re.fullmatch(r"(.*) __vector\((\d)\)", types[0])
    short = _TYPES[vector[1] if vector else types[0]]
    scalar = _LLVM[short.split(".")[-1]]
    value = f"<{vector[2]} x {scalar}>" if vector else scalar
    is_float = short[0] == "f"
    if is_float:
        name = {"abs": "fabs", "max": "fmax", "min": "fmin"}.get(name, name)
    if name in _UNSIGNED:
        short = short.split(".")[-1]
    if vector:
        short = f"v{vector[2]}{short}"
    parameters = [value]
    if name.startswith("simd_"):
        if name.removeprefix("simd_") in _SHUFFLES:
            parameters.append("i16")
    elif name in ("clz", "ctz"):
        parameters.append("i1")
    elif name == "frexp":
        parameters.append("ptr")
    else:
        parameters *= len(types)
    return f"air.{prefix}{name}.{short}", f"{value} ({', '.join(parameters)})"


def _atomic(operation, types):
    """Returns the name and the type of an atomic operation.

    The last parameters are the order, the scope of threads, and whether the memory is volatile.
    """
    space = "local" if "CLlocal" in types[0] else "global"
    pointer = f"ptr addrspace({3 if space == 'local' else 1})"
    type = _TYPES[re.search(r"_atomic<([\w ]+)>", types[0])[1]]
    if operation in _UNSIGNED:
        type = type.split(".")[-1]
    value = _LLVM[type.split(".")[-1]]
    operands = [] if operation == "load" else [value]
    parameters = [pointer, *operands, "i32", "i32", "i1"]
    result = "void" if operation == "store" else value
    return f"air.atomic.{space}.{operation}.{type}", f"{result} ({', '.join(parameters)})"


def attributes(name: str) -> str:
    """Returns the attributes that Apple's compiler gives to a function of AIR."""
    if name.startswith(("air.simd", "air.wg.")):
        return CONVERGENT
    return ATOMIC if name.startswith("air.atomic.") else MATHEMATICS
