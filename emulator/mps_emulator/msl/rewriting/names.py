"""The words of MSL, and what they are in C++ for OpenCL."""

_SCALARS = tuple("char uchar short ushort int uint long ulong half float bfloat".split())
VECTOR_NAMES = frozenset(
    [t + n for t in _SCALARS + ("bool",) for n in "234"]
    + ["packed_" + t + n for t in _SCALARS for n in "234"]
)
# Between these clang has no conversion.
SMALL_FLOATS = ("half", "bfloat")
# Words of which a type may be made that is no vector.
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
# What stands in the parentheses of `coherent`.
COHERENCE_SCOPES = ("device", "system", "threadgroup", "simdgroup", "thread")
# Behind the parameters of a member function clang takes keywords alone.  The
# one for device objects serves constant objects too.
METHOD_SPACES = {
    "device": "__global",
    "constant": "__global",
    "threadgroup": "__local",
    "thread": "__private",
}
# A constructor says where the objects it makes may be.
CONSTRUCTOR_SPACES = {
    "device": "__global",
    "constant": "__constant",
    "threadgroup": "__local",
    "thread": "",
}
UNSUPPORTED_SPACES = ("threadgroup_imageblock", "ray_data", "object_data")

# Keywords of OpenCL that are plain names in MSL.
_RENAMED = frozenset(
    """
    global local generic pipe read_only write_only read_write vec_step
    addrspace_cast sampler_t event_t clk_event_t queue_t reserve_id_t ndrange_t
    __global __local __constant __private __generic __kernel __read_only
    __write_only __read_write
    """.split()
)
_RENAMED_PREFIX = "__msl_user_"

_ATOMIC_NAMES = frozenset(
    ["atomic_int", "atomic_uint", "atomic_bool", "atomic_ulong", "atomic_float"]
)

# Words that C++ has and MSL has not.
REFUSED_WORDS = frozenset(
    """
    double goto new delete virtual try catch throw dynamic_cast typeid noexcept
    thread_local asm co_await co_return co_yield
    """.split()
)
# Parts of Metal that the emulator does not have, by their first word.
UNSUPPORTED_WORDS = {
    "vertex": "vertex functions",
    "fragment": "fragment functions",
    "visible_function_table": "visible function tables",
    "imageblock": "imageblocks",
    "sampler": "samplers",
    "acceleration_structure": "ray tracing",
}
UNSUPPORTED_PREFIXES = dict.fromkeys(
    "texture1d texture2d texture3d texturecube texture_buffer depth2d depthcube".split(), "textures"
)

BUILTINS_OF_THREE_DIMENSIONS = (
    "thread_position_in_grid",
    "thread_position_in_threadgroup",
    "threadgroup_position_in_grid",
    "threads_per_threadgroup",
    "dispatch_threads_per_threadgroup",
    "threads_per_grid",
    "threadgroups_per_grid",
    "grid_origin",
    "grid_size",
)
BUILTINS_OF_ONE_DIMENSION = (
    "thread_index_in_threadgroup",
    "thread_index_in_simdgroup",
    "simdgroup_index_in_threadgroup",
    "simdgroups_per_threadgroup",
    "dispatch_simdgroups_per_threadgroup",
    "threads_per_simdgroup",
    "thread_execution_width",
    "thread_index_in_quadgroup",
    "quadgroup_index_in_threadgroup",
    "quadgroups_per_threadgroup",
    "dispatch_quadgroups_per_threadgroup",
)
BUILTINS = frozenset(BUILTINS_OF_THREE_DIMENSIONS + BUILTINS_OF_ONE_DIMENSION)

# Attributes that clang knows under the same name.
STANDARD_ATTRIBUTES = frozenset(
    ["maybe_unused", "nodiscard", "noreturn", "fallthrough", "deprecated", "likely", "unlikely"]
)

# What every annotation begins with.
ANNOTATION = "msl."


def renamed(text):
    """What an identifier is called in C++ for OpenCL, None if the same."""
    if text in ADDRESS_SPACES:
        return ADDRESS_SPACES[text]
    if text in _ATOMIC_NAMES:
        return "__msl_" + text
    if text in _RENAMED:
        return _RENAMED_PREFIX + text
    return None


def declared(name):
    """The name under which a declaration of the program is known to clang."""
    return _RENAMED_PREFIX + name if name in _RENAMED else name


def original(name):
    """The name that a declaration has in the program."""
    if name.startswith(_RENAMED_PREFIX):
        return name[len(_RENAMED_PREFIX) :]
    return name


def annotate(text):
    """An attribute that the analysis finds in clang's AST."""
    return f'MSL_NOTE("{ANNOTATION}{text}")'


def annotate_parameter(text):
    """The same in any of the places that an attribute of a parameter has."""
    return f'MSL_PARAMETER_NOTE("{ANNOTATION}{text}")'
