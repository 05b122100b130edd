"""Changes a kernel's text of AIR so that llvm-spirv can translate it to SPIR-V.

The address spaces of AIR are those of OpenCL.  A call of a function of AIR stays a call of a
function without code, which agx_kernels.c replaces.  A parameter whose value the GPU computes
becomes a call too: `air.builtin.NAME.COMPONENT`.
"""

import re
import subprocess
from pathlib import Path

from mps_emulator.msl.air.module import Module, split

from k2_mps_tests.kernels import sources

_LAYOUT = "e-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024"
# What llvm-spirv 14 lacks, and what it reads instead.
_EDITS = (
    (r"^!.*\n", ""),
    (r"^target datalayout = .*$", f'target datalayout = "{_LAYOUT}"'),
    (r"^target triple = .*$", 'target triple = "spir64-unknown-unknown"'),
    (r"= freeze (\S+) (\S+)$", r"= bitcast \1 \2 to \1"),
    (r"@llvm\.s(max|min)\.i32\b", r"@air.\1.s.i32.llvm"),
    (r"^declare (?!.*@llvm)", "declare spir_func "),
    (r"\bcall (?=[^@]*@air)", "call spir_func "),
    (r"^attributes #0 = .*$", "attributes #0 = { nounwind alwaysinline }"),
)


def translate(bitcode, kernel, output):
    """Writes the SPIR-V of a kernel.

    Args:
      bitcode: the kernel's module of AIR, with typed pointers.
      kernel: the kernel's name, which is also its name in the SPIR-V.
      output: the Path of the file to write.
    Returns:
      The module.Module of the kernel.
    Raises:
      LookupError: LLVM 14 or llvm-spirv is not installed.
      subprocess.CalledProcessError: a program refused the module.
    """
    disassemble, assemble = (
        sources.program(f"llvm-{name}-14", install="apt-get install llvm-14")
        for name in ("dis", "as")
    )
    to_spirv = sources.program("llvm-spirv-14", install="apt-get install llvm-spirv-14")
    text = subprocess.run([disassemble, "-"], input=bytes(bitcode), stdout=-1, check=True).stdout
    module = Module(text.decode())
    assembled = subprocess.run(
        [assemble, "-"], input=_text(module, kernel).encode(), stdout=-1, check=True
    ).stdout
    command = [to_spirv, "--spirv-max-version=1.4", "-o", output, "-"]
    subprocess.run(command, input=assembled, check=True)
    return module


def _text(module, kernel):
    """Returns the text for llvm-spirv: the kernel's code, and an entry that calls the code."""
    head, parameters = re.search(
        rf"^define void @{re.escape(module.function)}\((.*)\) #0 \{{$", module.text, re.M
    ).group(0, 1)
    text = module.text.replace(head, f"define internal spir_func void @code({parameters}) #0 {{")
    for pattern, replacement in _EDITS:
        text = re.sub(pattern, replacement, text, flags=re.M)
    kinds = {argument.number: argument.kind for argument in module.arguments}
    given, values, body, declared = [], [], [], {}
    for number, parameter in enumerate(split(parameters)):
        type, _, name = parameter.rpartition(" ")
        if kinds[number] == "buffer":
            given.append(f"{type} %p{number}")
            values.append(given[-1])
        else:
            values.append(f"{type} {_builtin(number, kinds[number], type, body, declared)}")
    entry = [
        f"define spir_kernel void @{kernel}({', '.join(given)}) {{",
        *body,
        f"call spir_func void @code({', '.join(values)})",
        "ret void\n}\n",
    ]
    return "\n".join([text, *declared.values(), *entry])


def _builtin(number, kind, type, body, declared):
    """Adds the calls that compute a value to `body`; returns the value's name."""
    vector = re.fullmatch(r"<(\d) x (\w+)>", type)
    element = vector[2] if vector else type
    value = "undef"
    for component in range(int(vector[1]) if vector else 1):
        function = f"air.builtin.{kind}.{component}"
        declared[function] = f"declare spir_func {element} @{function}()"
        name = f"%b{number}.{component}"
        body.append(f"{name} = call spir_func {element} @{function}()")
        if not vector:
            return name
        body.append(f"{name}.v = insertelement {type} {value}, {element} {name}, i32 {component}")
        value = f"{name}.v"
    return value


def kernels_of(name, folder):
    """Yields (kernel, Path of its SPIR-V, its module.Module) for a file of kernels.

    Args:
      name: the file's name without .metal.
      folder: a folder for the SPIR-V.
    """
    from mps_emulator.msl.air.metallib import Metallib

    library = Path(folder, name + ".metallib")
    sources.front_end(name).build_metallib(str(library))
    compiled = Metallib(library.read_bytes())
    for kernel in compiled.kernels:
        output = Path(folder, kernel + ".spv")
        yield kernel, output, translate(compiled.bitcode(kernel), kernel, output)
