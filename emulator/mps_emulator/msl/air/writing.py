"""Writes kernels as AIR, the bitcode that Apple's compiler makes.

clang compiles the program for a GPU of AMD, because clang's passes for these GPUs move each pointer
from the generic address space, which AIR lacks, to the address space of its memory.  Before these
passes, entry() and prepare() make the program's kernels and its calls those of AIR.  After these
passes, Modules makes a module of AIR for each kernel.
"""

import re
import subprocess

from .. import nvptx
from ..errors import ToolError
from . import functions, lowering
from .module import split, type_of
from .typed_pointers import TypedPointers, leading_type, pointers

_ENTRY = "mps_emulator_air_kernel_"
_OF_LIBRARY = re.compile(
    r'^define [^@]*@(?P<name>_ZN5metal\w+|"_ZN5metal[^"]+")\((?P<parameters>.*)\) [^()]*\{$'
    r"(?s:.*?)^\}$",
    re.M,
)

# The attributes that Apple's compiler gives to functions of AIR.
_MATHEMATICS = "mustprogress nofree nosync nounwind willreturn"
_ATOMIC = "mustprogress nounwind willreturn"
_CONVERGENT = "convergent mustprogress nounwind willreturn"
_KERNEL = (
    'convergent mustprogress nounwind "frame-pointer"="all" "min-legal-vector-width"="0" '
    '"no-builtins" "no-trapping-math"="true" "stack-protector-buffer-size"="8"'
)
_HEAD = """\
source_filename = "{name}"
target datalayout = "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-f32:32:32-f64:64:64\
-v16:16:16-v24:32:32-v32:32:32-v48:64:64-v64:64:64-v96:128:128-v128:128:128-v192:256:256\
-v256:256:256-v512:512:512-v1024:1024:1024-n8:16:32"
target triple = "air64_v26-apple-macosx14.0.0"
"""
# The GPU's compiler needs the SDK's version.
_FLAGS = [
    'i32 2, !"SDK Version", [2 x i32] [i32 14, i32 0]',
    'i32 1, !"wchar_size", i32 4',
    'i32 7, !"frame-pointer", i32 2',
    'i32 7, !"air.max_device_buffers", i32 31',
    'i32 7, !"air.max_constant_buffers", i32 31',
    'i32 7, !"air.max_threadgroup_buffers", i32 31',
    'i32 7, !"air.max_textures", i32 128',
    'i32 7, !"air.max_read_write_textures", i32 8',
    'i32 7, !"air.max_samplers", i32 16',
]

# The functions of LLVM that Apple's compiler writes, too.
_OF_LLVM = re.compile(r"llvm\.(abs|[su]max|[su]min|memcpy|memset|usub\.sat)\.")
_GENERIC = re.compile(r"\bptr (?!addrspace)|addrspacecast")
_NOTES = re.compile(r"\bcall void @llvm\.(lifetime|experimental\.noalias)\.")
_IN_AIR = {"llvm.fabs": "air.fabs", "llvm.floor": "air.floor", "llvm.sqrt": "air.sqrt"}
_CONVERSION = re.compile(
    r"(?P<result>%\S+) = (?P<kind>sitofp|uitofp|fptosi|fptoui) (?P<value>.+) to (?P<type>.+)"
)
_SHORT = {"half": "f16", "bfloat": "bf16", "float": "f32"}
# Words that LLVM 14 does not know, and attributes of values.  AIR needs neither.
_NEWER = re.compile(
    r"\b(?:noundef|zeroext|signext|nocapture|noalias|nonnull|readonly|writeonly|immarg|nneg"
    r"|disjoint|captures\([^()]*\)|range\([^()]*\)|dereferenceable\(\d+\)|align \d+) "
)

DEVICE, CONSTANT, THREADGROUP = 1, 2, 3
_IN_DEVICE = f"ptr addrspace({DEVICE})"
_IN_CONSTANT = f"ptr addrspace({CONSTANT})"
_NAMED_POINTER = re.compile(rf"{re.escape(_IN_DEVICE)} (%[\w.]+|@[\w.$]+)")
# An expression, not an instruction, that computes a pointer from one to `constant` memory.
_COMPUTED_POINTER = re.compile(
    rf"{re.escape(_IN_DEVICE)}"
    rf" (getelementptr (?:inbounds )?\([^()]*{re.escape(_IN_CONSTANT)})"
)


# ---- Before clang's passes


def entry(number, kernel):
    """Returns the definition of a kernel's entry, as one line of C++."""
    signature, buffers, arguments = [], [], []
    for index, parameter in enumerate(kernel.parameters):
        if parameter.kind == "builtin":
            signature.append(f"{_builtin_type(parameter)} a{index}")
            arguments.append(f"a{index}")
            continue
        space = "__local" if parameter.kind == "threadgroup" else "__global"
        kind = "reference" if parameter.by_reference else "pointer"
        signature.append(f"{space} uchar *a{index}")
        buffers.append(f"__msl::buffer_{kind} __b{index} = {{(void *)a{index}}}; ")
        arguments.append(f"__b{index}")
    return (
        f'extern "C" void {_ENTRY}{number}({", ".join(signature)}) {{ {"".join(buffers)}'
        f"[[clang::always_inline]] ({kernel.function})({', '.join(arguments)}); }}"
    )


def _builtin_type(parameter):
    return parameter.scalar + ("" if parameter.components == 1 else str(parameter.components))


def prepare(ir):
    """Replaces the code of the functions of Metal's library by calls of functions of AIR."""
    found = list(_OF_LIBRARY.finditer(ir))
    shown = subprocess.run(
        ["c++filt"],
        input="\n".join(match["name"] for match in found),
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    declared, code = {}, {}
    for match, function in zip(found, shown):
        try:
            in_air = functions.in_air(function)
        except (KeyError, ValueError):
            continue  # If a kernel calls the function, module() may find a function of LLVM.
        if in_air:
            code[match["name"]] = _call(match, *in_air, declared)
    ir = _OF_LIBRARY.sub(lambda match: code.get(match["name"], match[0]), ir)
    ir = lowering.make_internal(nvptx.use_threadgroup_memory(ir))
    ir = ir.replace(f"define internal void @{_ENTRY}", f"define void @{_ENTRY}")
    return "\n".join([ir, *declared.values(), ""])


def _call(match, name, type, declared):
    """Defines a function of Metal's library as a call of a function of AIR."""
    # `thread` memory is address space 5 of a GPU of AMD.
    type = re.sub(r"ptr(?! addrspace)", "ptr addrspace(5)", type)
    result, _, types = type.partition(" (")
    types = split(types[:-1])
    further = _further_arguments(name)
    values = [f"%{number}" for number in range(len(types) - len(further))] + further
    attributes = _attributes(name)
    readnone = " memory(none)" if attributes == _MATHEMATICS and "ptr" not in type else ""
    declared[name] = f"declare {result} @{name}({', '.join(types)}) {attributes}{readnone}"
    call = f"call {result} @{name}({', '.join(map(' '.join, zip(types, values)))})"
    body = f"{call}\nret void" if result == "void" else f"%r = {call}\nret {result} %r"
    parameters = ", ".join(type_of(text) for text in split(match["parameters"]))
    convergent = "convergent " if attributes == _CONVERGENT else ""
    return (
        f"define internal {result} @{match['name']}({parameters}) alwaysinline nounwind "
        f"{convergent}{{\n{body}\n}}"
    )


def _further_arguments(name):
    """The last arguments of a function of AIR, which the function of Metal's library lacks."""
    if name.endswith(".barrier"):
        return ["1"]  # the scope: a threadgroup
    if name.startswith(("air.clz.", "air.ctz.")):
        return ["false"]  # zero is allowed
    if name.startswith("air.atomic.") and name != "air.atomic.fence":
        # The order is relaxed, the scope is a threadgroup or the device, the access is volatile.
        return ["0", "1" if ".local." in name else "2", "true"]
    return []


def _attributes(name):
    if name.startswith(("air.simd", "air.wg.")):
        return _CONVERGENT
    return _ATOMIC if name.startswith("air.atomic.") else _MATHEMATICS


# ---- After clang's passes


class Modules:
    """Makes modules of AIR.

    ir:     the text of the program after clang's passes.
    source: the name of the file, for the metadata.
    """

    def __init__(self, ir, source):
        self._source = source
        ir = re.sub(r",? ![\w.]+ !\d+", "", ir)  # the metadata of instructions
        self._functions = {
            found[1]: found[0]
            for found in re.finditer(rf"^define .*?@({_ENTRY}\d+)\((?s:.*?)^\}}$", ir, re.M)
        }
        self._structures = dict(re.findall(r'^(%(?:"[^"]+"|[\w.]+)) = type (.*)$', ir, re.M))
        self._globals = {
            found["name"]: found
            for found in re.finditer(
                r"^(?P<name>@[\w.$]+) = .*?addrspace\((?P<space>\d)\) (?:global|constant) "
                r"(?P<value>.*?)(?:, align (?P<align>\d+))?$",
                ir,
                re.M,
            )
        }

    def module(self, number, kernel):
        """Returns the text of a kernel's module.  Raises ToolError."""
        lines = self._functions[f"{_ENTRY}{number}"].splitlines()
        body = list(filter(None, map(_without_newer, lines[1:-1])))
        for line in body:
            if _GENERIC.search(line):
                raise ToolError(f"{kernel.name}: AIR has no generic pointers: {line.strip()}")
        parameters = split(re.search(r"\((.*)\) [^()]*\{$", lines[0])[1])
        types = [type_of(text) for text in parameters]
        constants = {name for name, found in self._globals.items() if found["space"] == "1"}
        for number, parameter in enumerate(kernel.parameters):
            if parameter.constant:
                constants.add(f"%{number}")
                types[number] = f"ptr addrspace({CONSTANT})"
        text = "\n".join(_move_constants(body, constants, kernel.name))
        # The address spaces of a GPU of AMD: 5 is `thread`, 4 is `constant`.
        text = text.replace(" addrspace(5)", "").replace("addrspace(4)", f"addrspace({CONSTANT})")
        variables = {
            name: self._variable(name)
            for name in sorted(set(re.findall(r"@[\w.$]+", text)))
            if name in self._globals
        }
        typed = TypedPointers(self._structures, {n: v[:2] for n, v in variables.items()})
        written, calls = [], {}
        for line in text.splitlines():
            for typed_line in typed.lines(_in_air(line.strip())):
                written.append(typed_line)
                _note_call(typed_line, calls, kernel.name)
        parameter_text = ", ".join(f"{pointers(type)} %{i}" for i, type in enumerate(types))
        parts = [
            *(v[2] for v in variables.values()),
            f"define void @{_quoted(kernel.name)}({parameter_text}) #0 {{",
            *written,
            "}",
            *calls.values(),
            f"attributes #0 = {{ {_KERNEL} }}",
            _metadata(kernel, self._source, [pointers(type) for type in types]),
        ]
        return _HEAD.format(name=kernel.name) + "\n".join([*self._used_structures(parts), *parts])

    def _variable(self, name):
        """Returns (type, address space, definition) of a global variable."""
        found = self._globals[name]
        space = THREADGROUP if found["space"] == "3" else CONSTANT
        type = leading_type(found["value"])
        kind = "global" if space == THREADGROUP else "constant"
        align = f", align {found['align']}" if found["align"] else ""
        return (
            type,
            f" addrspace({space})",
            f"{name} = internal addrspace({space}) {kind} {found['value']}{align}",
        )

    def _used_structures(self, parts):
        used, todo = set(), "\n".join(parts)
        while names := {n for n in self._structures if n in todo and n not in used}:
            used |= names
            todo = "\n".join(self._structures[name] for name in names)
        return [f"{name} = type {self._structures[name]}" for name in sorted(used)]


def _without_newer(line):
    """Removes from a line what LLVM 14 does not know, and what AIR does not need."""
    line = re.sub(r";.*$| #\d+$|, addrspace\(5\)$", "", line).rstrip()
    if _NOTES.search(line):
        return ""
    if " = trunc " in line or "getelementptr" in line:
        line = re.sub(r"\b(?:nuw|nsw|nusw) ", "", line)
    return _NEWER.sub("", line)


def _move_constants(lines, constants, kernel):
    """Returns the lines with each pointer to `constant` memory in its address space.

    clang's passes do not distinguish `constant` from `device` memory, so all these pointers are in
    the address space of `device` memory before.  Raises ToolError if a pointer may be to either.

    constants: the names of the global variables and parameters in `constant` memory.
    """
    while True:
        lines = [_with_constants(line, constants) for line in lines]
        # The results of these instructions are in the same memory as their operands.
        computed = {
            line.split()[0]
            for line in lines
            if _IN_CONSTANT in line
            and re.match(r"\s*%\S+ = (getelementptr|phi|select|freeze) ", line)
        }
        if computed <= constants:
            break
        constants = constants | computed
    for line in lines:
        if _may_be_either(line, constants):
            raise ToolError(f"{kernel}: a pointer to device or to constant memory: {line}")
    return lines


def _with_constants(line, constants):
    """Returns a line with the pointers of these names in the address space of `constant` memory."""
    line = _NAMED_POINTER.sub(
        lambda found: f"{_IN_CONSTANT} {found[1]}" if found[1] in constants else found[0], line
    )
    line = _COMPUTED_POINTER.sub(rf"{_IN_CONSTANT} \1", line)
    if " = phi ptr " in line and constants & set(re.findall(r"[%@][\w.$]+", line)):
        line = line.replace(_IN_DEVICE, _IN_CONSTANT)
    return line


def _may_be_either(line, constants):
    """Whether a line makes a pointer that may be to `device` memory or to `constant` memory."""
    if _IN_CONSTANT not in line:
        return False
    if _IN_DEVICE in line and "call" not in line:
        return True
    operands = re.findall(r"\[ (\S+),", line) if " = phi ptr " in line else []
    return any(name[0] == "%" and name not in constants for name in operands)


def _in_air(line):
    """Replaces an instruction or a function of LLVM for which Apple writes a function of AIR."""
    if match := _CONVERSION.fullmatch(line):
        given = leading_type(match["value"])
        signed = "s" if match["kind"] in ("sitofp", "fptosi") else "u"
        to, source = (_short(type, signed) for type in (match["type"], given))
        return (
            f"{match['result']} = call {match['type']} @air.convert.{to}.{source}({match['value']})"
        )
    return re.sub(r"@(llvm\.\w+)\.", lambda found: f"@{_IN_AIR.get(found[1], found[1])}.", line)


def _short(type, signed):
    """Returns the name of a type in the name of a function of AIR, like f.f32 or s.v4i32."""
    vector = re.fullmatch(r"<(\d+) x (\w+)>", type)
    scalar = vector[2] if vector else type
    kind = "f" if scalar in _SHORT else "u" if scalar == "i1" else signed
    return f"{kind}.{f'v{vector[1]}' if vector else ''}{_SHORT.get(scalar, scalar)}"


def _note_call(line, calls, kernel):
    """Adds the declaration of the function that a line calls."""
    match = re.fullmatch(r".*?\bcall (?P<result>.+?) @(?P<name>[\w.]+)\((?P<arguments>.*)\)", line)
    if match is None or match["name"] in calls:
        return
    name = match["name"]
    if not name.startswith("air.") and not _OF_LLVM.match(name):
        raise ToolError(f"{kernel}: AIR has no function {name}")
    types = [_argument_type(text) for text in split(match["arguments"])]
    attributes = _attributes(name) if name.startswith("air.") else "nounwind"
    if attributes == _MATHEMATICS and not any("*" in type for type in types):
        attributes += " readnone"
    calls[name] = f"declare {match['result']} @{name}({', '.join(types)}) {attributes}"


def _argument_type(text):
    pointer = re.match(r"\S+(?: addrspace\(\d\))?\*", text)
    return pointer[0] if pointer else leading_type(text)


def _quoted(name):
    return name if re.fullmatch(r"[\w.$]+", name) else f'"{name}"'


def _metadata(kernel, source, types):
    nodes = []

    def node(text):
        nodes.append(f"!{len(nodes)} = !{{{text}}}")
        return f"!{len(nodes) - 1}"

    flags = ", ".join(map(node, _FLAGS))
    named = [
        ("llvm.module.flags", flags),
        ("llvm.ident", node('!"mps-emulator"')),
        ("air.version", node("i32 2, i32 6, i32 0")),
        ("air.language_version", node('!"Metal", i32 3, i32 1, i32 0')),
        (
            "air.compile_options",
            ", ".join(
                node(f'!"air.compile.{option}"')
                for option in ("denorms_disable", "fast_math_disable", "framebuffer_fetch_enable")
            ),
        ),
        ("air.source_file_name", node(f'!"{source}"')),
    ]
    described = [_argument(*pair) for pair in enumerate(kernel.parameters)]
    arguments = node(", ".join(map(node, described)))
    entry = [f"void ({', '.join(types)})* @{_quoted(kernel.name)}", node(""), arguments]
    if kernel.limits_threads:
        entry.append(node(f'!"air.max_work_group_size", i32 {kernel.max_total_threads}'))
    named.append(("air.kernel", node(", ".join(entry))))
    return "\n".join([*(f"!{name} = !{{{content}}}" for name, content in named), *nodes, ""])


def _argument(number, parameter):
    """Describes a kernel's parameter as Apple's compiler describes it."""
    name = f'!"air.arg_name", !"{parameter.name}"'
    if parameter.kind == "builtin":
        type = f'!"air.arg_type_name", !"{_builtin_type(parameter)}"'
        return f'i32 {number}, !"air.{parameter.builtin}", {type}, {name}'
    is_threadgroup = parameter.kind == "threadgroup"
    written = parameter.writable or is_threadgroup
    space = THREADGROUP if is_threadgroup else CONSTANT if parameter.constant else DEVICE
    size = f'!"air.buffer_size", i32 {parameter.element_size}, ' if parameter.by_reference else ""
    access = "read_write" if written else "read"
    return (
        f'i32 {number}, !"air.buffer", {size}!"air.location_index", i32 {parameter.index}, i32 1, '
        f'!"air.{access}", !"air.address_space", i32 {space}, '
        f'!"air.arg_type_size", i32 {parameter.element_size}, '
        f'!"air.arg_type_align_size", i32 {parameter.alignment}, '
        f'!"air.arg_type_name", !"{_type_name(parameter)}", {name}'
    )


def _type_name(parameter):
    words = r"\b(?:const|volatile|constant|device|threadgroup|__global|__local)\b|[*&]"
    return re.sub(words, "", parameter.type_spelling).strip()
