"""Lists the words of MSL, and the words of C++ for OpenCL that replace them."""

_SCALARS = tuple("char uchar short ushort int uint long ulong half float bfloat".split())
VECTOR_NAMES = frozenset(t + n for t in _SCALARS + ("bool",) for n in "234")
# clang cannot convert between these two types.
SMALL_FLOATS = ("half", "bfloat")
# The words that occur in the names of non-vector types.
SCALAR_WORDS = frozenset(
    _SCALARS
    + ("bool", "unsigned", "signed", "void", "size_t", "ptrdiff_t")
    + tuple(f"{u}int{n}_t" for u in ("", "u") for n in (8, 16, 32, 64))
)

ADDRESS_SPACES = {
    "device": "MSL_DEVICE",
    "constant": "MSL_CONSTANT",
    "threadgroup": "MSL_THREADGROUP",
    "thread": "MSL_THREAD",
}
# {MSL's word after the parameters of a member function: the keyword that clang accepts there}.
# `device` and `constant` get the same keyword, so a member function for `device` objects can also
# be called for `constant` objects.
METHOD_SPACES = {
    "device": "__global",
    "constant": "__global",
    "threadgroup": "__local",
    "thread": "__private",
}
# {MSL's word after the parameters of a constructor: clang's keyword}.  The word is the address
# space of the new object.
CONSTRUCTOR_SPACES = {
    "device": "__global",
    "constant": "__global",
    "threadgroup": "__local",
    "thread": "",
}

# Keywords of OpenCL that are ordinary names in MSL.
_RENAMED = frozenset(
    """
    global local generic pipe read_only write_only read_write vec_step
    addrspace_cast sampler_t event_t clk_event_t queue_t reserve_id_t ndrange_t
    __global __local __constant __private __generic __kernel __read_only
    __write_only __read_write
    """.split()
)
_RENAMED_PREFIX = "__msl_user_"

_ATOMIC_NAMES = frozenset(["atomic_int", "atomic_uint", "atomic_bool", "atomic_float"])

# Keywords of C++ that Metal's compiler refuses.
REFUSED_WORDS = frozenset(
    """
    double goto new delete virtual try catch throw dynamic_cast typeid noexcept
    thread_local asm co_await co_return co_yield
    """.split()
)
BUILTINS_OF_THREE_DIMENSIONS = (
    "thread_position_in_grid",
    "thread_position_in_threadgroup",
    "threadgroup_position_in_grid",
    "threads_per_threadgroup",
    "dispatch_threads_per_threadgroup",
    "threads_per_grid",
    "threadgroups_per_grid",
)
BUILTINS_OF_ONE_DIMENSION = (
    "thread_index_in_threadgroup",
    "thread_index_in_simdgroup",
    "simdgroup_index_in_threadgroup",
    "simdgroups_per_threadgroup",
    "dispatch_simdgroups_per_threadgroup",
    "threads_per_simdgroup",
    "thread_execution_width",
)
BUILTINS = frozenset(BUILTINS_OF_THREE_DIMENSIONS + BUILTINS_OF_ONE_DIMENSION)

FUNCTION_ATTRIBUTES = frozenset(
    "kernel host_name max_total_threads_per_threadgroup user_annotation visible stitchable".split()
)
# Attributes that clang has under the same names.
STANDARD_ATTRIBUTES = frozenset(
    ["maybe_unused", "nodiscard", "noreturn", "fallthrough", "deprecated", "likely", "unlikely"]
)

# The prefix of every annotation.
ANNOTATION = "msl."


def renamed(text: str) -> str | None:
    """Returns the word of C++ for OpenCL that replaces a word of MSL, or None for no change."""
    if text in ADDRESS_SPACES:
        return ADDRESS_SPACES[text]
    if text in _ATOMIC_NAMES:
        return "__msl_" + text
    if text in _RENAMED:
        return _RENAMED_PREFIX + text
    return None


def declared(name: str) -> str:
    """Returns the name that a variable of the program has in the rewritten text."""
    return _RENAMED_PREFIX + name if name in _RENAMED else name


def original(name: str) -> str:
    """Returns the name that a variable of the rewritten text has in the program."""
    if name.startswith(_RENAMED_PREFIX):
        return name[len(_RENAMED_PREFIX) :]
    return name


def annotate(text: str) -> str:
    """Returns C++ that annotates a declaration.  The analysis reads annotations in clang's AST."""
    return f'MSL_NOTE("{ANNOTATION}{text}")'


def annotate_parameter(text: str) -> str:
    """Returns C++ that annotates a parameter wherever MSL allows attributes."""
    return f'MSL_PARAMETER_NOTE("{ANNOTATION}{text}")'
