"""Compares the emulator's headers with bindings that were generated from Apple's headers.

- pyobjc's metadata (wheels pyobjc-framework-Metal and pyobjc-framework-Cocoa) has the type
  encodings of methods and the values of enums.
- metal-cpp (in the wheel mlx-metal) has the selectors.

The wheels are for macOS, but the tests read only files of the wheels. pip downloads the wheels,
unless MPS_EMULATOR_WHEELS names a folder that contains the wheels.
"""

import ast
import collections
import functools
import os
import pathlib
import re
import subprocess
import sys
import zipfile

import mps_emulator
import pytest
from mps_emulator.msl import toolchain

PACKAGES = {
    "pyobjc_framework_cocoa": "pyobjc-framework-Cocoa",
    "pyobjc_framework_metal": "pyobjc-framework-Metal",
    "mlx_metal": "mlx-metal",
}


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """wheel(name) returns the metadata and the C++ headers of a wheel, {path: text}.

    The name is a key of PACKAGES.
    """
    given = os.environ.get("MPS_EMULATOR_WHEELS")
    folder = pathlib.Path(given or tmp_path_factory.mktemp("wheels"))

    @functools.lru_cache(None)
    def texts(name):
        if not given:
            _download(PACKAGES[name], folder)
        found = sorted(folder.glob(name + "-*.whl"))
        if not found:
            pytest.skip(f"{folder} has no wheel of {PACKAGES[name]}")
        with zipfile.ZipFile(found[-1]) as archive:
            return {
                entry: archive.read(entry).decode()
                for entry in archive.namelist()
                if entry.endswith(("_metadata.py", ".hpp"))
            }

    return texts


def _download(package, folder):
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", f"--dest={folder}", package]
    command += [
        "--platform=macosx_14_0_arm64",
        "--platform=macosx_10_9_universal2",
        "--implementation=cp",
        "--python-version=3.11",
    ]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode != 0:
        pytest.skip(f"pip cannot download {package} (no network?): {result.stdout.strip()[-300:]}")


class Headers:
    """The declarations that libclang finds in one of the emulator's headers.

    Args:
      name: "Metal" or "Foundation".
    Attributes:
      methods: {(name of a protocol or class, selector): signature}.  A signature is a tuple with
        the type encodings of the result and of each argument.
      enums: {name of an enumerator: value}.
    """

    def __init__(self, name):
        self.cindex = toolchain.load_libclang()
        flags = mps_emulator.cpp_extension_flags()
        options = ["-x", "objective-c++", "-std=c++17"]
        options += flags["extra_cflags"]
        options += ["-I" + path for path in flags["extra_include_paths"]]
        unit = self.cindex.Index.create().parse(
            "declarations.mm",
            args=options,
            unsaved_files=[("declarations.mm", f"#include <{name}/{name}.h>\n")],
        )
        errors = [d.spelling for d in unit.diagnostics if d.severity >= 3]
        assert errors == []
        self.methods = {}
        self.enums = {}
        kinds = self.cindex.CursorKind
        for cursor in unit.cursor.get_children():
            if cursor.location.file is None or not (
                cursor.location.file.name.endswith(f"/{name}.h")
            ):
                continue
            if cursor.kind in (kinds.OBJC_PROTOCOL_DECL, kinds.OBJC_INTERFACE_DECL):
                self._read_methods(cursor)
            elif cursor.kind == kinds.ENUM_DECL:
                for constant in cursor.get_children():
                    if constant.kind == kinds.ENUM_CONSTANT_DECL:
                        self.enums[constant.spelling] = constant.enum_value

    def _read_methods(self, owner):
        kinds = (
            self.cindex.CursorKind.OBJC_INSTANCE_METHOD_DECL,
            self.cindex.CursorKind.OBJC_CLASS_METHOD_DECL,
        )
        for method in owner.get_children():
            if method.kind in kinds:
                # The encoding of a method has the result, the receiver, the selector, and then
                # the arguments.
                result, _, _, *arguments = map(_here, _PIECE.findall(method.objc_type_encoding))
                self.methods[owner.spelling, method.spelling] = (result, *arguments)


# A type in the encoding of a method.  An offset follows each type.
_PIECE = re.compile(r"[rV]*(\^*(?:\{[^}]*\}|@\?|.))\d+")


def _here(encoding):
    """Returns the encoding that a type of the emulator's headers has on macOS.

    On macOS, BOOL is bool, and pointers of libdispatch are objects.
    """
    if encoding == "C" or encoding.startswith("^{dispatch_"):
        return {"C": "B"}.get(encoding, "@")
    return _shortened(encoding)


@pytest.fixture(scope="module")
def headers():
    return {name: Headers(name) for name in ("Metal", "Foundation")}


# ---- pyobjc


def _shortened(encoding):
    """Shortens an encoding: removes qualifiers, types of pointees, and types of fields.

    Args:
      encoding: a str of clang, or bytes of pyobjc.
    """
    if isinstance(encoding, bytes):
        encoding = encoding.decode()
    encoding = encoding.lstrip("rnNoORV")
    if encoding.startswith(("^", "[")) or encoding == "*":
        return "^"
    if encoding.startswith("@"):
        return "@"
    if encoding.startswith("{"):
        return "{{{}}}".format(re.sub(r"\{[\w?]+=|[{}]", "", encoding))
    # pyobjc has more codes than clang: Z for a BOOL, z for a byte that is a number in Python, and
    # T for a character of UTF-16.
    own = {"Z": "B", "z": "C", "T": "S", "L": "Q", "l": "q"}
    return own.get(encoding, encoding)


# Several protocols have a method `status`, and pyobjc's metadata does not distinguish the
# protocols.  The metadata gives the signed type that MTLIOCommandBuffer's method returns.  The
# method of MTLCommandBuffer returns an unsigned integer, so the test does not compare this method.
IN_ANOTHER_PROTOCOL = [("MTLCommandBuffer", "status")]


def pyobjc_methods(text):
    """Reads pyobjc's metadata, which lacks the types that pyobjc gets from the Mac's runtime.

    Returns:
      {selector: [(result, arguments)]}.  The result is an encoding or None.  The arguments are
      {number of an argument: encoding}.
    """
    found = collections.defaultdict(list)
    for node in ast.walk(ast.parse(text)):
        if not (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "r"
        ):
            continue
        _, selector, facts = (ast.literal_eval(a) for a in node.args[:3])
        result = facts.get("retval", {}).get("type")
        arguments = {
            number - 2: _shortened(argument["type"])
            for number, argument in facts.get("arguments", {}).items()
            if "type" in argument
        }
        found[selector.decode()].append((_shortened(result) if result else None, arguments))
    return found


def pyobjc_enums(text):
    return {name: int(value) for name, value in re.findall(r"\$((?:MPS|MTL|NS)\w+)@(-?\d+)", text)}


def check_encodings(headers, expected):
    """Asserts that the methods of `headers` have the types that pyobjc's metadata gives.

    Args:
      expected: what pyobjc_methods() returns.
    Returns:
      The number of methods for which pyobjc has an entry.
    """
    checked = 0
    wrong = []
    for (owner, selector), signature in headers.methods.items():
        candidates = expected.get(selector)
        if not candidates or (owner, selector) in IN_ANOTHER_PROTOCOL:
            # Most methods without an entry are methods of classes: pyobjc gets the types of these
            # methods from the Mac's runtime.
            continue
        checked += 1
        if not any(
            result in (None, signature[0])
            and all(
                signature[1 + number] == encoding
                for number, encoding in arguments.items()
                # For a method with "...", pyobjc can have one argument more than the header.
                if 1 + number < len(signature)
            )
            for result, arguments in candidates
        ):
            wrong.append((owner, selector, signature, candidates))
    assert wrong == []
    return checked


@pytest.mark.parametrize(
    "name, package, most",
    [("Metal", "pyobjc_framework_metal", 82), ("Foundation", "pyobjc_framework_cocoa", 10)],
)
def test_type_encodings(headers, wheel, name, package, most):
    text = wheel(package)[f"{name}/_metadata.py"]
    assert check_encodings(headers[name], pyobjc_methods(text)) == most


def test_enums(headers, wheel):
    (pyobjc,) = wheel("pyobjc_framework_metal").values()
    apples, enums = pyobjc_enums(pyobjc), headers["Metal"].enums
    assert enums == {name: apples.get(name) for name in enums}
    assert len(enums) >= 25


# ---- metal-cpp


def selectors_of_metal_cpp(text):
    return set(re.findall(r"_DEF_SEL\(\s*\w+,\s*\"([^\"]+)\"\s*\)", text))


# Methods whose selectors are neither in metal-cpp nor in pyobjc's metadata.
NAMED_NOWHERE = {("NSObject", "class"), ("NSObject", "new")}


def test_selectors(headers, wheel):
    selectors = set()
    for text in wheel("mlx_metal").values():
        selectors |= selectors_of_metal_cpp(text)
    assert [key for key in headers["Metal"].methods if key[1] not in selectors] == []
    selectors |= set(pyobjc_methods(wheel("pyobjc_framework_cocoa")["Foundation/_metadata.py"]))
    assert {
        key for key in headers["Foundation"].methods if key[1] not in selectors
    } == NAMED_NOWHERE
