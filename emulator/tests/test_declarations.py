"""Compares the headers with bindings that others generated from Apple's headers.

- pyobjc's metadata (wheels pyobjc-framework-Metal and -Cocoa): type encodings,
  enum values;
- metal-cpp (in the wheel mlx-metal): selectors.

The tests only read the wheels, which are for macOS.  pip downloads them, unless
MPS_EMULATOR_WHEELS names a folder that has them.
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
    """wheel(name): the text files of a wheel, {path: text}."""
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
    """The declarations of one of the emulator's headers, read by clang.

    methods: {(protocol or class, selector): signature}; a signature is the
             encodings of the result and of the arguments.
    enums:   {name: value}
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
                # The receiver and the selector follow the result.
                result, _, _, *arguments = map(_here, _PIECE.findall(method.objc_type_encoding))
                self.methods[owner.spelling, method.spelling] = (result, *arguments)


# A type in a method's encoding, before its offset.
_PIECE = re.compile(r"[rV]*(\^*(?:\{[^}]*\}|@\?|.))\d+")


def _here(encoding):
    """The encoding as on macOS, where BOOL is bool, and dispatch's pointers are objects."""
    if encoding == "C" or encoding.startswith("^{dispatch_"):
        return {"C": "B"}.get(encoding, "@")
    return _shortened(encoding)


@pytest.fixture(scope="module")
def headers():
    return {name: Headers(name) for name in ("Metal", "Foundation")}


# ---- pyobjc


def _shortened(encoding):
    """An encoding with structures and pointers as Headers writes them."""
    if isinstance(encoding, bytes):
        encoding = encoding.decode()
    encoding = encoding.lstrip("rnNoORV")
    if encoding.startswith(("^", "[")) or encoding == "*":
        return "^"
    if encoding.startswith("@"):
        return "@"
    if encoding.startswith("{"):
        return "{{{}}}".format(re.sub(r"\{[\w?]+=|[{}]", "", encoding))
    # pyobjc's own codes: Z is a BOOL, z a byte that Python sees as a number, T a
    # character of UTF-16.
    own = {"Z": "B", "z": "C", "T": "S", "L": "Q", "l": "q"}
    return own.get(encoding, encoding)


# pyobjc has one entry for each selector.  The entry for `status` describes
# MTLIOCommandBuffer's, which is signed.
OF_ANOTHER_PROTOCOL = [("MTLCommandBuffer", "status")]


def pyobjc_methods(text):
    """{selector: [(result or None, {number: encoding})]}"""
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
    """Asserts that methods have pyobjc's types; returns the number of methods it knows."""
    checked = 0
    wrong = []
    for (owner, selector), signature in headers.methods.items():
        candidates = expected.get(selector)
        if not candidates or (owner, selector) in OF_ANOTHER_PROTOCOL:
            continue  # mostly methods of classes, whose types the runtime of a Mac gives
        checked += 1
        if not any(
            result in (None, signature[0])
            and all(
                signature[1 + number] == encoding
                for number, encoding in arguments.items()
                # The first argument after the declared ones, in "...".
                if 1 + number < len(signature)
            )
            for result, arguments in candidates
        ):
            wrong.append((owner, selector, signature, candidates))
    assert wrong == []
    print(f"\n{checked} of {len(headers.methods)} methods")
    return checked


@pytest.mark.parametrize(
    "name, package, most",
    [("Metal", "pyobjc_framework_metal", 80), ("Foundation", "pyobjc_framework_cocoa", 10)],
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


# Selectors that neither metal-cpp nor pyobjc's metadata name.
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
