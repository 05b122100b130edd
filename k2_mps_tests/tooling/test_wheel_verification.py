"""Each check of `k2mps wheel verify` finds its kind of damage.

clang and lld make the Mach-O files of a small wheel and of a small torch.  The tests write the
reference that a wheel is compared with.  The tool itself gathers the reference from the checkout
and from installed packages.
"""

import dataclasses
import struct
import sys
import types
import zipfile
from pathlib import Path

import pytest
from k2mps.build import interpreter, provenance, toolchain
from k2mps.core import errors, process
from k2mps.core.progress import Reporter
from k2mps.wheel import contents, expectations
from k2mps.wheel import verify as verification
from k2mps.wheel.archive import WheelFile
from k2mps.wheel.verify import compiled_kernels, verify

from k2_mps_tests.tooling import macos, wheel_of_k2

TREE = "1234567890" * 4
TAG = f"cp{sys.version_info.major}{sys.version_info.minor}"
SUFFIX = f".cpython-{TAG.removeprefix('cp')}-darwin.so"
EXTENSION = f"_k2{SUFFIX}"
CONTEXT = "k2/lib/libk2context.dylib"
INIT = "k2/__init__.py"
PROJECT = "/srv/k2-mps"
LIBSYSTEM = "/usr/lib/libSystem.B.dylib"
SYSTEM = {LIBSYSTEM: {"_abort", "dyld_stub_binder"}}
RPATHS = ("@loader_path", "@loader_path/../../torch/lib")
TORCH_CODE = "int torch_symbol(void) { return 1; }\n"
CONTEXT_CODE = """
void abort(void);
int torch_symbol(void);
int k2_symbol(void) { if (torch_symbol()) abort(); return 1; }
"""
EXTENSION_CODE = """
void *PyList_New(long);
int k2_symbol(void);
void *PyInit__k2(void) { return k2_symbol() ? 0 : PyList_New(0); }
"""
# Code that calls gone(), and code that defines gone().
GONE = "int gone(void); int y(void) { return gone(); }\n"
DEFINED = "int gone(void) { return 2; }\n"


class Workshop:
    """Makes the libraries of a wheel in a folder, beside a small torch."""

    def __init__(self, folder: Path):
        self._folder = folder
        self.stub("libSystem.tbd", LIBSYSTEM, SYSTEM[LIBSYSTEM])
        (folder / "newer").mkdir()
        self.library(TORCH_CODE, "libtorch.dylib")

    def stub(self, file: str, library: str, symbols: set[str]) -> Path:
        """Writes a .tbd file, which the linker reads in place of a library; returns its path.

        The file is for macOS on two processors, and for iOS.
        """
        text = toolchain.stub(library, symbols, ())
        path = self._folder / file
        path.write_text(text.replace("arm64-macos", "arm64-macos, x86_64-macos, arm64-ios"))
        return path

    def library(self, code: str, file: str, *options: object, rpaths=RPATHS, **how: str) -> bytes:
        """Compiles C code and links it with libSystem; returns the library's bytes."""
        rpath_options = (f"-Wl,-rpath,{rpath}" for rpath in rpaths)
        system = (f"-L{self._folder}", "-lSystem", *rpath_options)
        return macos.link(code, self._folder / file, *system, *options, **how).read_bytes()

    def context(self, more: str = "", *options: str, torch: str = "", **how) -> bytes:
        """Makes libk2context.dylib, linked with libtorch.

        Args:
          more: further C code of the library.
          options: further options of the linker.
          torch: the folder of libtorch, in the workshop's folder.
        """
        options = (*options, self._folder / torch / "libtorch.dylib")
        return self.library(CONTEXT_CODE + more, "libk2context.dylib", *options, **how)

    def extension(self, more: str = "", *options: str) -> bytes:
        """Makes the extension _k2 with `more` C code, linked with libk2context."""
        self.context()
        options = (self._folder / "libk2context.dylib", "-Wl,-U,_PyList_New", *options)
        where = {"rpaths": ("@loader_path/k2/lib",), "kind": "-bundle"}
        return self.library(EXTENSION_CODE + more, EXTENSION, *options, **where)

    def alone(self, code: str, target: str) -> bytes:
        """Makes libk2context.dylib for another system, from `code` alone and without torch."""
        name = "@rpath/libk2context.dylib"
        return self.library(code, "alone.dylib", target=target, name=name)

    def without(self, library: str, code: str = "") -> bytes:
        """Makes libk2context.dylib, which calls gone(); no library of the reference has gone().

        The linker finds gone() in a stub of `library`.  With `code`, the linker finds gone() in
        another libtorch, which is compiled from this code.
        """
        if code:
            self.library(TORCH_CODE + code, "newer/libtorch.dylib")
            return self.context(GONE, torch="newer")
        return self.context(GONE, self.stub("stub.tbd", library, {"_gone"}))


@pytest.fixture(scope="session")
def workshop(tmp_path_factory) -> Workshop:
    macos.require_linker()
    return Workshop(tmp_path_factory.mktemp("workshop"))


@dataclasses.dataclass
class Case:
    """A wheel that can be changed before it is written; `files` lacks RECORD, which pack() adds."""

    folder: Path
    description: contents.Description
    files: dict[str, bytes]
    reference: expectations.Reference

    @property
    def path(self) -> Path:
        return self.folder / self.description.file_name

    def info_path(self, name: str) -> str:
        return f"{self.description.info}/{name}"

    def problems(self) -> list[expectations.Problem]:
        contents.pack(self.path, self.description, self.files)
        return list(verify(WheelFile(self.path), self.reference))

    def found(self) -> set[str]:
        """Writes the wheel; returns the names of the checks that find a problem in it."""
        return {problem.check for problem in self.problems()}


@pytest.fixture(scope="session")
def parts(workshop) -> dict[str, bytes]:
    return {EXTENSION: workshop.extension(), CONTEXT: workshop.context()}


@pytest.fixture
def case(tmp_path, workshop, parts) -> Case:
    tag = f"{TAG}-{TAG}-{toolchain.platform('2.13.0')}"
    description = dataclasses.replace(
        wheel_of_k2.case(built=toolchain.LABEL, patched_tree=TREE).description, tag=tag
    )
    python = {INIT: b"from _k2 import answer\n", "k2/fsa.py": b"pass\n"}
    files = {
        **parts,
        **python,
        **contents.metadata_files(description),
        "k2/torch_version.py": b"k2_torch_version = '2.13.0'\n",
    }
    files[INIT] += b"__dev_version__ = '1.0'\n"
    torch = {"torch/lib/libtorch.dylib": {"_torch_symbol"}}
    reference = expectations.Reference(python, TREE, interpreter.find(), (PROJECT,), torch, SYSTEM)
    return Case(tmp_path, description, files, reference)


def test_a_good_wheel_has_no_problems(case):
    assert case.problems() == []


def test_compiled_kernels_are_checked(case, tmp_path):
    checked = []

    def run(arguments, **_):
        checked.append(Path(arguments[-1]).read_bytes())
        return process.Outcome(1, ("graph_index is missing",))

    environment = types.SimpleNamespace(run=run, project=types.SimpleNamespace(root=tmp_path))

    def found():
        contents.pack(case.path, case.description, case.files)
        return list(compiled_kernels(WheelFile(case.path), environment))

    case.files[CONTEXT] += b"MTLBuffer"  # a name, which begins as compiled kernels do
    case.files["k2/fsa.py"] += b"# MTLB\x01\x80"  # no library
    assert (found(), checked) == ([], [])
    case.files[CONTEXT] += b"MTLB\x01\x80"
    assert found() == [expectations.Problem("kernels", CONTEXT, "graph_index is missing")]
    assert checked == [case.files[CONTEXT]]
    # Apple's compiler made the kernels of a native build.
    case.files[case.info_path("k2mps.json")] = case.files[case.info_path("k2mps.json")].replace(
        toolchain.LABEL.encode(), provenance.NATIVE.encode()
    )
    assert found() == []


@pytest.mark.parametrize("promised", [True, False])
def test_promised_kernels_must_be_there(case, promised):
    """The description of the wheel says whether the kernels were compiled; no library has any."""
    description = dataclasses.replace(
        case.description, origin={**case.description.origin, "metallib": promised}
    )
    contents.pack(case.path, description, {**case.files, **contents.metadata_files(description)})
    wheel = WheelFile(case.path)
    assert list(verify(wheel, case.reference)) == []
    told = "promises compiled kernels, but no library has any"
    expected = [expectations.Problem("kernels", case.info_path("k2mps.json"), told)]
    environment = types.SimpleNamespace(project=types.SimpleNamespace(root=None))
    assert list(compiled_kernels(wheel, environment)) == expected * promised


@pytest.mark.parametrize(
    "name, old, new, checks",
    [
        ("k2/notes.txt", None, "", {"files"}),
        ("k2/lib/libother.dylib", None, "", {"files"}),
        ("k2/lib/libk2context.a", None, "", {"files"}),
        ("k2_mps_tests/__init__.py", None, "", {"files"}),
        ("k2/fsa.py", None, None, {"files"}),
        ("k2/torch_version.py", None, None, {"files"}),
        (EXTENSION, None, None, {"files"}),
        (CONTEXT, None, None, {"libraries"}),
        (CONTEXT, None, "\x7fELF not at all", {"machine", "symbols"}),
        ("k2/fsa.py", "pass", "import os", {"python"}),
        (INIT, None, "__dev_version__ = '1'\nfrom _k2 import answer\n", {"python"}),
        ("k2mps.json", TREE, TREE[::-1], {"origin"}),
        ("k2mps.json", "{", "", {"origin"}),
    ],
)
def test_a_missing_added_or_changed_file_is_a_problem(case, name, old, new, checks):
    """Changes a file of the wheel.

    Args:
      old: the text that `new` replaces; None replaces the whole file.
      new: the new text; None removes the file.
      checks: the checks that find a problem.
    """
    name = name if "/" in name or name in case.files else case.info_path(name)
    if old is not None:
        content = case.files[name].decode()
        assert old in content
        new = content.replace(old, new)
    case.files[name] = new
    case.files = {
        path: one.encode() if isinstance(one, str) else one
        for path, one in case.files.items()
        if one is not None
    }
    assert case.found() == checks
    assert "files" not in checks or case.problems()[0].file in name


OTHER = "int k2_symbol(void) { return 0; }"
WEAK = f"__attribute__((weak)) {DEFINED}"
# {name: ([the method of Workshop that makes the library, the arguments of this method], the checks
# that find a problem)}
LIBRARIES = {
    "another processor": (["alone", OTHER, "x86_64-apple-macos14.0"], {"machine", "symbols"}),
    # lld signs only files for macOS.
    "another platform": (["alone", OTHER, "arm64-apple-ios17.0"], {"platform", "signature"}),
    "a newer macOS": (["context", {"target": "arm64-apple-macos15.0"}], {"minimum-os"}),
    "its own name": (["context", {"name": f"/usr/local/{CONTEXT}"}], {"install-name"}),
    "an absolute rpath": (["context", {"rpaths": (*RPATHS, "/Library/torch/lib")}], {"rpath"}),
    "no rpath to torch": (["context", {"rpaths": ("@loader_path",)}], {"libraries"}),
    "no signature": (["context", "", "-Wl,-no_adhoc_codesign"], {"signature"}),
    "a path of a user": (["context", 'const char file[] = "/home/me/k2/fsa.cu";\n'], {"paths"}),
    "a path of the project": (["context", f'const char file[] = "{PROJECT}/fsa.cu";\n'], {"paths"}),
    "a library that macOS lacks": (["without", "/usr/lib/libz.1.dylib"], {"libraries"}),
    "a symbol that macOS lacks": (["without", LIBSYSTEM], {"symbols"}),
    "a symbol that torch lacks": (["without", "torch", DEFINED], {"symbols"}),
    "a weak symbol that torch lacks": (["without", "torch", WEAK], {"symbols"}),
}


@pytest.mark.parametrize("name", LIBRARIES)
def test_each_fault_of_a_library_is_a_problem(case, workshop, name):
    (method, *arguments), checks = LIBRARIES[name]
    how = arguments.pop() if isinstance(arguments[-1], dict) else {}
    case.files[CONTEXT] = getattr(workshop, method)(*arguments, **how)
    assert case.found() == checks
    if name == "a symbol that torch lacks":
        told = "@rpath/libtorch.dylib does not export _gone"
        assert [told in str(problem) for problem in case.problems()] == [True]


def test_a_library_that_names_no_system_is_a_problem(case):
    version, source = (struct.pack("<2I", command, 32) for command in (0x32, 0x2A))
    assert case.files[CONTEXT].count(version) == 1
    case.files[CONTEXT] = case.files[CONTEXT].replace(version, source)
    assert case.found() == {"platform"}


def test_a_library_for_several_processors_is_a_problem(case):
    """The header of a universal file, which here has only the part for arm64."""
    content = case.files[CONTEXT]
    header = struct.pack(">7I", 0xCAFEBABE, 1, 0x0100000C, 0, 1 << 14, len(content), 14)
    case.files[CONTEXT] = header.ljust(1 << 14, b"\0") + content
    assert [str(problem) for problem in case.problems()] == [
        f"[machine] {CONTEXT}: not for arm64 alone"
    ]


def test_a_long_path_of_a_build_machine_is_cut(case):
    case.files[CONTEXT] += b"/home/" + b"a" * 300
    [problem] = case.problems()
    assert f"names /home/{'a' * 194}, a path" in problem.text


@pytest.mark.parametrize("count, last", [(20, "such file"), (23, "\nand 3 more"), (0, "")])
def test_an_error_lists_twenty_problems(case, monkeypatch, tmp_path, count, last):
    monkeypatch.setattr(verification, "gather", lambda *_: case.reference)
    project = types.SimpleNamespace(root=tmp_path)
    environment = types.SimpleNamespace(reporter=Reporter(), project=project)
    case.files |= {f"k2/{number}": b"" for number in range(count)}
    if count:
        case.files[CONTEXT] += b"MTLB\x01\x80"  # The kernels of a wrong wheel are not checked.
    contents.pack(case.path, case.description, case.files)
    if not count:
        verification.check(case.path, environment, None)
        return
    with pytest.raises(errors.CheckFailedError, match=rf"has {count} problem\(s\)") as caught:
        verification.check(case.path, environment, None)
    assert caught.value.why.count("such file") == 20 and caught.value.why.endswith(last)


def test_a_name_for_another_processor_is_a_problem(case):
    tag = case.description.tag.replace("arm64", "x86_64")
    case.description = dataclasses.replace(case.description, tag=tag)
    assert case.found() == {"machine"}


def test_the_same_rpath_twice_is_a_problem(case):
    old, new = b"@loader_path/../../torch/lib\0", b"@loader_path".ljust(29, b"\0")
    assert old in case.files[CONTEXT]
    case.files[CONTEXT] = case.files[CONTEXT].replace(old, new)
    # The library then has no rpath to torch.
    assert case.found() == {"rpath", "libraries"}


# PyList_Gone has a name like a function of Python, but Python has no such function.
@pytest.mark.parametrize("name", ["other", "PyList_Gone"])
def test_an_undefined_symbol_that_is_not_pythons_is_a_problem(case, workshop, name):
    code = f"int {name}(void); int y() {{ return {name}(); }}\n"
    case.files[EXTENSION] = workshop.extension(code, f"-Wl,-U,_{name}")
    [problem] = case.problems()
    assert str(problem) == f"[symbols] {EXTENSION}: no library exports _{name}"


def test_the_problem_of_another_series_names_its_tree(case):
    name = case.info_path("k2mps.json")
    case.files[name] = case.files[name].replace(TREE.encode(), TREE[::-1].encode())
    [problem] = case.problems()
    assert str(problem) == f"[origin] {name}: not made of the patched tree {TREE[:12]}"


# ---- the command


def test_a_wheel_for_another_python_is_not_verified(buildable, tmp_path):
    path = tmp_path / "k2-1.0+mps.cpu.torch2.13.0-cp39-cp39-macosx_14_0_arm64.whl"
    zipfile.ZipFile(path, "w").close()
    code = errors.CheckFailedError.exit_code
    error = buildable.fails(code, "wheel", "verify", str(path))
    assert "is not for cp3" in error
    # The symbols are those of .venv's Python, not those of the Python that runs the tool.
    assert f"with those of {buildable.root}/.venv/bin/python\n" in error
