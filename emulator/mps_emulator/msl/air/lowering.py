"""Changes the text of a module so that clang compiles the module for the host.

The result has no address spaces.  A call that waits for other threads gets a site, the place
of the call, as its last argument.  A function of vectors becomes calls of the function for scalars.
A threadgroup variable becomes memory of the executor.  The result has a function that the kernel's
thunk calls for each thread: the entry.
"""

import re

from ..errors import ToolError
from ..kernel import MAX_BUFFERS
from ..rewriting import names
from . import threadgroup_variables
from .module import Module

# The functions that wait for other threads.
_SUSPENDING = re.compile(r"air\.(simd_|wg\.barrier|simdgroup\.barrier)")
_VECTOR = re.compile(r"<(\d+) x (\w+)>")
_LINKAGE = (
    r"(?:(?:internal|private|weak_odr|weak|linkonce_odr|linkonce|hidden|protected|dso_local) )*"
)


def lower(module: Module, number: int, report_accesses: bool = False) -> str:
    """Returns the text for clang.

    Args:
      number: the number of the kernel, which is in the name of the entry.
      report_accesses: whether the kernel reports its accesses to memory to the executor.
    """
    variables = threadgroup_variables.find(module.text)
    text = module.text
    for variable in variables:
        text = text.replace(variable.line, "", 1)
    text = _without_apples_metadata(_without_address_spaces(text))
    text = _reset_attributes(text, report_accesses)
    text, shims = _replace_declarations(text, module)
    text = _add_sites(text)
    text = threadgroup_variables.use_executors_memory(text, variables)
    text = make_internal(text)
    return "\n".join([text, *shims, _entry(module, number), ""])


def entry_name(number: int) -> str:
    """Returns the name of the function that runs kernel `number` for one thread."""
    return f"mps_emulator_air_entry_{number}"


# ---- Address spaces and metadata


def _without_address_spaces(text):
    text = re.sub(
        r"addrspacecast (ptr addrspace\(\d\)|ptr) (\S+) to ptr(?: addrspace\(\d\))?",
        r"getelementptr i8, ptr \2, i64 0",
        text,
    )
    text = re.sub(
        r"addrspacecast \(ptr(?: addrspace\(\d\))? (@[\w.$-]+) to ptr(?: addrspace\(\d\))?\)",
        r"\1",
        text,
    )
    text = re.sub(r" addrspace\(\d\)", "", text)
    # The name of an intrinsic function contains the address spaces of its arguments.
    return re.sub(r"@llvm\.[\w.]+", lambda name: re.sub(r"\.p\d", ".p0", name[0]), text)


def _without_apples_metadata(text):
    text = re.sub(r"^!air\..*$", "", text, flags=re.M)
    return re.sub(r"^@llvm\.(?:global_ctors|used|compiler\.used) = .*$", "", text, flags=re.M)


def _reset_attributes(text, report_accesses):
    """Removes the attributes of functions that are strings, which name another processor."""
    added = " sanitize_thread" if report_accesses else ""

    def reset(line):
        words = re.sub(r'"[^"]*"(?:="[^"]*")?', "", line[2])
        return f"attributes {line[1]} = {{ {' '.join(words.split())}{added} }}"

    text = re.sub(r"^attributes (#\d+) = \{ (.*) \}$", reset, text, flags=re.M)
    # A function without a group of attributes.
    return re.sub(r"^(define (?!.*#\d).*) \{$", rf"\1{added} {{", text, flags=re.M)


def make_internal(text: str) -> str:
    """Makes all functions and variables internal, because the library has several modules."""
    text = re.sub(rf"^define {_LINKAGE}", "define internal ", text, flags=re.M)
    kept = r"((?:local_)?unnamed_addr )?(global|constant) "
    text = re.sub(rf"^(@\S+ = ){_LINKAGE}{kept}", r"\1internal \2\3 ", text, flags=re.M)
    return re.sub(r",? comdat(?:\(.*?\))?|^\$.* = comdat any$", "", text, flags=re.M)


# ---- Functions of AIR


def _replace_declarations(text, module):
    """Declares the functions of AIR as include/implementation/air.h defines them.

    Returns:
      The text; and a list of definitions of functions of vectors, which air.h lacks.
    """
    declared = {}
    shims = []
    for found in module.declarations():
        _declare(
            found.name, _plain(found.result), list(map(_plain, found.parameters)), declared, shims
        )
    lines = []
    for line in text.splitlines():
        if line.startswith("declare "):
            name = re.search(r"@([\w.]+)\(", line)[1]
            if name.startswith("air.") or name in declared:
                continue
            declared[name] = None  # an intrinsic function, declared once
        lines.append(line)
    lines += [line for line in declared.values() if line is not None]
    return "\n".join(lines), shims


def _plain(type):
    return "ptr" if type.startswith("ptr") else type


def _declare(name, result, parameters, declared, shims):
    """Declares a function of AIR once.

    Args:
      declared: {name of a function: its declaration, or None if it needs none}; gets the function.
      shims: gets the definition of a function of vectors.
    """
    if name in declared:
        return
    suspends = bool(_SUSPENDING.match(name))
    all_parameters = [*parameters, "i64"] if suspends else parameters
    if not (_VECTOR.fullmatch(result) or any(map(_VECTOR.fullmatch, parameters))):
        declared[name] = f"declare {result} @{name}({', '.join(all_parameters)})"
        return
    declared[name] = None
    count = _VECTOR.fullmatch(result)
    if count is None:
        raise ToolError(f"the emulator lacks AIR's function {name}")
    scalar = re.sub(r"\.v\d+(?=[a-z])", ".", name)
    _declare(scalar, _element(result), list(map(_element, parameters)), declared, shims)
    shims.append(_shim(name, scalar, int(count[1]), result, parameters, suspends))


def _element(type):
    vector = _VECTOR.fullmatch(type)
    return vector[2] if vector else type


def _shim(name, scalar, count, result, parameters, suspends):
    """Returns a function of vectors that calls the function of scalars for each component."""
    lines = []
    value = "poison"
    for component in range(count):
        arguments = []
        for position, type in enumerate(parameters):
            argument = f"%a{position}"
            if _VECTOR.fullmatch(type):
                element = f"%e{component}.{position}"
                lines.append(f"{element} = extractelement {type} {argument}, i64 {component}")
                argument = element
            arguments.append(f"{_element(type)} {argument}")
        if suspends:
            arguments.append("i64 %site")
        lines.append(f"%r{component} = call {_element(result)} @{scalar}({', '.join(arguments)})")
        lines.append(
            f"%v{component} = insertelement {result} {value}, {_element(result)} %r{component},"
            f" i64 {component}"
        )
        value = f"%v{component}"
    given = [f"{type} %a{position}" for position, type in enumerate(parameters)]
    if suspends:
        given.append("i64 %site")
    body = "\n".join([*lines, f"ret {result} {value}"])
    return f"define internal {result} @{name}({', '.join(given)}) alwaysinline {{\n{body}\n}}"


def _add_sites(text):
    """Gives each call that waits for other threads a site: the number of the line."""
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if line.startswith(("define", "declare")) or "@air." not in line:
            continue
        line = re.sub(r"\b(?:tail|musttail|notail) call", "call", line)
        call = re.search(r"@(air\.[\w.]+)\((.*)\)", line)
        if call and _SUSPENDING.match(call[1]):
            separator = ", " if call[2] else ""
            # Attributes of the call could allow clang to move it.
            line = f"{line[: call.end() - 1]}{separator}i64 {number << 32 | 1})"
        lines[number - 1] = line
    return "\n".join(lines)


def suspends(module: Module) -> bool:
    """Whether the module calls a function that waits for other threads."""
    return any(_SUSPENDING.match(found.name) for found in module.declarations())


# ---- The entry


def _entry(module, number):
    """Returns the definition of the function that the kernel's thunk calls for each thread."""
    lines, arguments = [], []
    builtins = set()
    for argument in sorted(module.arguments, key=lambda argument: argument.number):
        value = f"%value.{argument.number}"
        if argument.kind == "buffer":
            lines += _load_buffer(argument, value)
        elif argument.kind in names.BUILTINS:
            builtins.add(argument.kind)
            value = _load_builtin(argument, lines)
        else:
            raise ToolError(f"the emulator does not support arguments of the kind {argument.kind}")
        arguments.append(f"{_plain(argument.type)} {value}")
    position = "ptr, i32, i32, i32, i32"
    declared = [f"declare i32 @air.builtin.{name}({position})" for name in sorted(builtins)]
    return "\n".join(
        [
            *declared,
            f"define void @{entry_name(number)}(ptr %launch, i32 %x, i32 %y, i32 %z) {{",
            *lines,
            f"call void @{module.function}({', '.join(arguments)})",
            "ret void\n}",
        ]
    )


def _load_buffer(argument, value):
    # In mps_emulator_msl_launch (abi.h), the pointers to threadgroup memory follow the pointers to
    # buffers.
    slot = argument.index + MAX_BUFFERS if argument.is_threadgroup else argument.index
    address = f"%address.{argument.number}"
    return [
        f"{address} = getelementptr ptr, ptr %launch, i64 {slot}",
        f"{value} = load ptr, ptr {address}",
    ]


def _load_builtin(argument, lines):
    """Adds the instructions for a built-in value to `lines`; returns the value."""
    vector = _VECTOR.fullmatch(argument.type)
    element = _element(argument.type)
    value = "poison"
    for component in range(int(vector[1]) if vector else 1):
        name = f"%builtin.{argument.number}.{component}"
        lines.append(
            f"{name} = call i32 @air.builtin.{argument.kind}("
            f"ptr %launch, i32 %x, i32 %y, i32 %z, i32 {component})"
        )
        if element != "i32":
            lines.append(f"{name}.small = trunc i32 {name} to {element}")
            name += ".small"
        if vector is None:
            return name
        lines.append(
            f"{name}.all = insertelement {argument.type} {value}, {element} {name}, i64 {component}"
        )
        value = f"{name}.all"
    return value
