"""Finds the files of kernels, and gives their texts, cases, constants, structs and PTX."""

import enum
import functools
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

TESTS = Path(__file__).resolve().parent.parent
# #include "k2/..." is relative to this folder.
ROOT = TESTS.parent / "patches" / "files"
KERNELS = ROOT / "k2" / "csrc" / "mps" / "kernels"
# The folder of kernels that call the functions of a header, to check the header.
CHECKS = Path(__file__).resolve().parent / "checks"
_LITERAL = re.compile(rb'R"k2_metal\((.*?)\)k2_metal"', re.DOTALL)
FRONT_END = TESTS.parent / "emulator" / "mps_emulator" / "msl"


def names():
    """Returns the names of all files of kernels, without .metal."""
    return sorted(path.stem for folder in (KERNELS, CHECKS) for path in folder.glob("*.metal"))


def path(name):
    """Returns the path of the file of kernels with this name."""
    file = name + ".metal"
    return (KERNELS if (KERNELS / file).exists() else CHECKS) / file


def front_end(name):
    """Returns the emulator's front end for a file of kernels, mps_emulator.msl.pipeline.Program."""
    from mps_emulator.msl.pipeline import Program

    return Program(str(path(name)), name, [str(ROOT)], fast_math=False)


def write_metallibs(folder, names):
    """Compiles files of kernels on Linux for a Mac, to `folder`/NAME.metallib; needs llvm-as-14."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        front_end(name).build_metallib(str(folder / f"{name}.metallib"))


def cases(name):
    """Returns the cases of a file of kernels, [Case].

    Raises:
      LookupError: the file has no check.
    """
    module = f"{__package__}.checks.{name}"
    try:
        check = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise LookupError(
            f"{name}.metal has no check: write k2_mps_tests/kernels/checks/{name}.py"
        ) from None
    return list(check.cases())


def require_all(name, cases, kernels):
    """Requires a case for each kernel of a file, and a kernel for each case.

    Raises:
      LookupError: a case or a kernel is missing.
    """
    checked = {case.kernel for case in cases}
    for missing, what in (
        (set(kernels) - checked, "does not launch"),
        (checked - set(kernels), "launches a function that is no kernel,"),
    ):
        if missing:
            raise LookupError(
                "k2_mps_tests/kernels/checks/{}.py {} {}".format(
                    name, what, ", ".join(sorted(missing))
                )
            )


def program(*names, install=None):
    """Returns the path of the first of these programs that is beside this Python or in PATH.

    Args:
      install: the command that installs the program; default: `make doctor` says it.
    Raises:
      LookupError: none of the programs is found.
    """
    folders = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for name in names:
        if found := shutil.which(name, path=folders):
            return found
    how = f": {install}" if install else "; `make doctor` says how to install it"
    raise LookupError(f"there is no {' or '.join(names)}{how}")


@functools.cache
def text(name):
    """Returns the text of the file of kernels with this name, with k2's headers inserted."""
    return with_headers(path(name))


def with_headers(source):
    """Returns the text of a file, with k2's headers inserted.

    The script that embeds kernels in k2 makes this text.
    """
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch, "embedded.cc")
        settings = {"NAME": source.stem, "SOURCE": source, "ROOT": ROOT, "OUTPUT": output}
        command = [program("cmake"), *(f"-D{key}={value}" for key, value in settings.items())]
        subprocess.run([*command, "-P", ROOT / "cmake/embed_metal.cmake"], check=True)
        # The script can split the text into C++ literals in the middle of a character.
        return b"".join(_LITERAL.findall(output.read_bytes())).decode()


# The types of Metal that structs of arguments have.
_NUMBERS = {"int": np.int32, "unsigned int": np.uint32, "long": np.int64, "float": np.float32}


def layout(header, name):
    """Returns the type of a header's struct as a numpy.dtype.

    Each field has the name, the type and the offset that it has in C++.  Buffer.struct() makes
    arguments of kernels from the dtype.
    """
    [struct] = [
        declaration
        for declaration in _declarations(header)
        if declaration["kind"] == "CXXRecordDecl" and declaration["name"] == name
    ]
    fields = [
        (member["name"], _field_type(header, member["type"]["qualType"]))
        for member in struct["inner"]
        if member["kind"] == "FieldDecl"
    ]
    # With align=True, NumPy gives fields the offsets that C++ gives them.
    return np.dtype(fields, align=True)


def _field_type(header, declared):
    """Returns the NumPy type of a field.

    Args:
      declared: the type in C++, like int, int[4] or struct SwooshTail.
    """
    element, size = re.fullmatch(r"(?:struct )?([\w ]+)(?:\[(\d+)\])?", declared).groups()
    numpy_type = _NUMBERS.get(element) or layout(header, element)
    return (numpy_type, int(size)) if size else numpy_type


@functools.cache
def _declarations(header):
    """Returns the declarations of a header, as nodes of clang's syntax tree."""
    syntax = subprocess.run(
        [
            program("clang++-19", "clang++"),
            "-x",
            "c++",
            f"-I{ROOT}",
            "-fsyntax-only",
            "-Xclang",
            "-ast-dump=json",
            str(KERNELS / header),
        ],
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    return json.loads(syntax)["inner"]


@functools.cache
def _enumerations(header):
    """Returns {enumeration: {enumerator: value}} of a header; clang computes the values."""
    return {
        declaration["name"]: _values(declaration["inner"])
        for declaration in _declarations(header)
        if declaration["kind"] == "EnumDecl"
    }


def _values(nodes):
    """Returns {enumerator: value}.

    An enumerator without an expression has the value of the enumerator before it, plus 1.
    """

    def value(node):
        return int(node["value"]) if node["kind"] == "ConstantExpr" else value(node["inner"][0])

    values, following = {}, 0
    for node in nodes:
        if node["kind"] == "EnumConstantDecl":
            values[node["name"]] = value(node["inner"][0]) if "inner" in node else following
            following = values[node["name"]] + 1
    return values


def enumerators(header):
    """Returns the values of all enumerators of a header, {name: int}."""
    return {
        name: value for every in _enumerations(header).values() for name, value in every.items()
    }


def enumeration(header, name):
    """Returns an enumeration of a header as an enum.IntEnum."""
    return enum.IntEnum(name, _enumerations(header)[name])


# These patterns match in the text of a file after the preprocessor.
_BUFFER = re.compile(
    r"\b(device(?: const)?|constant) [\w<>, ]+[*&]\s*\w+\s*\[\[buffer\((\w+)\)\]\]"
)
_KERNEL = re.compile(r"\bkernel void (\w+)\(([^{]*)\{")
_INSTANCE = re.compile(
    r'\[\[host_name\(\s*((?:"\w*"\s*)+)\)\]\]\s*\[\[kernel\]\]\s*decltype\((\w+)<'
)


@functools.cache
def writable_arguments(name):
    """Returns {kernel: {enumerator of an argument: whether the kernel may write the argument}}.

    A kernel may write the arguments that it declares as `device` without `const`.

    Args:
      name: the name of a file of kernels, without .metal.
    """
    preprocessed = subprocess.run(
        [program("clang++-19", "clang++"), "-x", "c++", "-E", "-P", "-"],
        check=True,
        input=re.sub("#include <.*>", "", text(name)),
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    writable = {
        kernel: {argument: space == "device" for space, argument in _BUFFER.findall(parameters)}
        for kernel, parameters in _KERNEL.findall(preprocessed)
    }
    for strings, template in _INSTANCE.findall(preprocessed):
        # The compiler joins adjacent strings, like "ctc_sums_" "double_256".
        instance = "".join(re.findall(r"\w+", strings))
        writable[instance] = writable[template]
    return writable


def enumerations_of_arguments():
    """Returns the enumerations of the arguments of k2's kernels, [(header, name)]."""
    return [
        (path.name, name)
        for path in sorted(KERNELS.glob("*.h"))
        for name in re.findall(r"enum (\w+Buffer) {", path.read_text())
    ]


@functools.cache
def argument_numbers():
    """Returns {enumerator: number} of the arguments of all of k2's kernels."""
    numbers = {}
    for header, name in enumerations_of_arguments():
        numbers |= _enumerations(header)[name]
    return numbers


def compile_to_ptx(name, output, libdevice, gpu):
    """Compiles a file of kernels for an NVIDIA GPU, with the emulator's front end.

    As in k2, fast math is off.  The front end assumes that all lanes of a simdgroup reach each
    simdgroup function.

    Args:
      output: the Path of the PTX to write.
      libdevice: the Path of CUDA's libdevice.10.bc.
      gpu: the GPU's architecture, like sm_90.
    Returns:
      [{"name", "entry", "arguments", "max_threads", "threadgroup_bytes"}],
      one for each kernel.
    Raises:
      subprocess.CalledProcessError: the front end refused the file and printed why.
    """
    with tempfile.TemporaryDirectory() as scratch:
        described = Path(scratch) / "kernels.json"
        command = [sys.executable, FRONT_END, "ptx", path(name), "--include", ROOT]
        command += ["--output", output, "--json", described]
        command += ["--gpu", gpu, "--libdevice", libdevice, "--no-fast-math", "--whole-simdgroups"]
        subprocess.run(command, check=True, stdout=subprocess.PIPE)
        return json.loads(described.read_text())
