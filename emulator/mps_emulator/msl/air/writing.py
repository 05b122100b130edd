"""Writes kernels as AIR, the bitcode that Apple's compiler makes.

clang compiles the program for a GPU of AMD, because clang's passes for these GPUs move each pointer
from the generic address space, which AIR lacks, to the address space of its memory.  Before these
passes, preparing.py makes the program's kernels and its calls those of AIR.  After these passes,
Modules makes a module of AIR for each kernel.
"""

import re
from typing import NamedTuple

from ..errors import ToolError
from ..kernel import Kernel
from . import functions
from .constant_memory import move_constants
from .metadata import metadata, quoted
from .module import CONSTANT, THREADGROUP, split, type_of
from .preparing import ENTRY
from .typed_pointers import TypedPointers, leading_type, pointers

# The attributes that Apple's compiler gives to kernels.
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
# The functions of LLVM that Apple's compiler writes, too.
_LLVM_FUNCTION = re.compile(r"llvm\.(abs|[su]max|[su]min|memcpy|memset|usub\.sat)\.")
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


class _Variable(NamedTuple):
    """A global variable of a module of AIR."""

    name: str  # with the @
    type: str
    space: str  # the address space, as the text after a type
    definition: str


class Modules:
    """Makes modules of AIR.

    Args:
      ir: the text of the program after clang's passes.
      source: the name of the file, for the metadata.
    """

    def __init__(self, ir: str, source: str):
        self._source = source
        ir = re.sub(r",? ![\w.]+ !\d+", "", ir)  # the metadata of instructions
        self._functions = {
            found[1]: found[0]
            for found in re.finditer(rf"^define .*?@({ENTRY}\d+)\((?s:.*?)^\}}$", ir, re.M)
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

    def module(self, number: int, kernel: Kernel) -> str:
        """Returns the text of a kernel's module.

        Args:
          number: the number of the kernel's entry.
        Raises:
          ToolError: AIR cannot express the kernel.
        """
        lines = self._functions[f"{ENTRY}{number}"].splitlines()
        body = list(filter(None, map(_without_newer, lines[1:-1])))
        for line in body:
            if _GENERIC.search(line):
                raise ToolError(f"{kernel.name}: AIR has no generic pointers: {line.strip()}")
        parameters = split(re.search(r"\((.*)\) [^()]*\{$", lines[0])[1])
        types = [type_of(text) for text in parameters]
        constants = {name for name, found in self._globals.items() if found["space"] == "1"}
        for index, parameter in enumerate(kernel.parameters):
            if parameter.constant:
                constants.add(f"%{index}")
                types[index] = f"ptr addrspace({CONSTANT})"
        text = "\n".join(move_constants(body, constants, kernel.name))
        # The address spaces of a GPU of AMD: 5 is `thread`, 4 is `constant`.
        text = text.replace(" addrspace(5)", "").replace("addrspace(4)", f"addrspace({CONSTANT})")
        variables = [
            self._variable(name)
            for name in sorted(set(re.findall(r"@[\w.$]+", text)))
            if name in self._globals
        ]
        typed = TypedPointers(self._structures, {v.name: (v.type, v.space) for v in variables})
        written, calls = [], {}
        for line in text.splitlines():
            for typed_line in typed.lines(_in_air(line.strip())):
                written.append(typed_line)
                _note_call(typed_line, calls, kernel.name)
        parameter_text = ", ".join(f"{pointers(type)} %{i}" for i, type in enumerate(types))
        parts = [
            *(variable.definition for variable in variables),
            f"define void @{quoted(kernel.name)}({parameter_text}) #0 {{",
            *written,
            "}",
            *calls.values(),
            f"attributes #0 = {{ {_KERNEL} }}",
            metadata(kernel, self._source, [pointers(type) for type in types]),
        ]
        return _HEAD.format(name=kernel.name) + "\n".join([*self._used_structures(parts), *parts])

    def _variable(self, name):
        """Returns the _Variable for a global variable."""
        found = self._globals[name]
        space = THREADGROUP if found["space"] == "3" else CONSTANT
        type = leading_type(found["value"])
        kind = "global" if space == THREADGROUP else "constant"
        align = f", align {found['align']}" if found["align"] else ""
        definition = f"{name} = internal addrspace({space}) {kind} {found['value']}{align}"
        return _Variable(name, type, f" addrspace({space})", definition)

    def _used_structures(self, parts):
        """Returns the definitions of the structures that a module's parts name."""
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
    """Adds the declaration of the function that a line calls to `calls`, {name: declaration}.

    Raises:
      ToolError: AIR has no such function.
    """
    match = re.fullmatch(r".*?\bcall (?P<result>.+?) @(?P<name>[\w.]+)\((?P<arguments>.*)\)", line)
    if match is None or match["name"] in calls:
        return
    name = match["name"]
    if not name.startswith("air.") and not _LLVM_FUNCTION.match(name):
        raise ToolError(f"{kernel}: AIR has no function {name}")
    types = [_argument_type(text) for text in split(match["arguments"])]
    attributes = functions.attributes(name) if name.startswith("air.") else "nounwind"
    if attributes == functions.MATHEMATICS and not any("*" in type for type in types):
        attributes += " readnone"
    calls[name] = f"declare {match['result']} @{name}({', '.join(types)}) {attributes}"


def _argument_type(text):
    pointer = re.match(r"\S+(?: addrspace\(\d\))?\*", text)
    return pointer[0] if pointer else leading_type(text)
