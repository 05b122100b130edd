"""`k2mps wheel verify`: each check finds the wheel with its kind of damage.

clang and lld make the Mach-O files of a small wheel and of a small torch.  The tests
give the reference for comparison, instead of gathering it from installed packages.
"""

import dataclasses
import re
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from k2mps.build import doctor, toolchain
from k2mps.core import errors
from k2mps.wheel import contents, expectations, images
from k2mps.wheel.archive import WheelFile
from k2mps.wheel.verify import verify

from k2_mps_tests.tooling import macos, test_wheel_tools
from k2_mps_tests.tooling.test_build import sandbox  # noqa: F401

TREE = "1234567890" * 4
TAG = f"cp{sys.version_info.major}{sys.version_info.minor}"
SUFFIX = f".cpython-{TAG.removeprefix('cp')}-darwin.so"
EXTENSION = f"_k2{SUFFIX}"
CONTEXT = "k2/lib/libk2context.dylib"
INIT = "k2/__init__.py"
KERNEL = "kernel void add() {}\n"
SYSTEM = {"/usr/lib/libSystem.B.dylib": {"_abort", "dyld_stub_binder"}}
STUB = """\
--- !tapi-tbd
tbd-version: 4
targets: [ arm64-macos, x86_64-macos, arm64-ios ]
install-name: '%s'
exports:
  - targets: [ arm64-macos, x86_64-macos, arm64-ios ]
    symbols: [ %s ]
...
"""
RPATHS = ("@loader_path", "@loader_path/../../torch/lib")
TORCH_CODE = "int torch_symbol(void) { return 1; }\n"
CONTEXT_CODE = """
void abort(void);
int torch_symbol(void);
const char k2_kernel[] = %s;
int k2_symbol(void) { if (torch_symbol()) abort(); return k2_kernel[0]; }
"""
EXTENSION_CODE = """
void *PyList_New(long);
int k2_symbol(void);
void *PyInit__k2(void) { return k2_symbol() ? 0 : PyList_New(0); }
"""


class Workshop:
    """Makes the parts of a wheel.

    Args:
      folder: where the parts lie.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self.torch = folder / "site" / "torch"
        (self.torch / "lib").mkdir(parents=True)
        names = ", ".join(sorted(SYSTEM["/usr/lib/libSystem.B.dylib"]))
        (folder / "libSystem.tbd").write_text(STUB % ("/usr/lib/libSystem.B.dylib", names))
        self.library(TORCH_CODE, self.torch / "lib/libtorch.dylib")

    def context(
        self,
        code: str = CONTEXT_CODE,
        kernel: str = KERNEL,
        torch: Path | None = None,
        options: Sequence[str] = (),
        **more,
    ) -> bytes:
        """libk2context.dylib, linked with libtorch."""
        text = '"' + kernel.replace("\n", "\\n") + '"'
        libtorch = torch or self.torch / "lib/libtorch.dylib"
        return self.library(
            code % text if "%s" in code else code,
            self._folder / "libk2context.dylib",
            options=[str(libtorch), *options],
            **more,
        )

    def extension(self, code: str = EXTENSION_CODE, options: Sequence[str] = ()) -> bytes:
        """_k2, linked with libk2context."""
        self.context()
        return self.library(
            code,
            self._folder / EXTENSION,
            kind="-bundle",
            rpaths=("@loader_path/k2/lib",),
            options=[str(self._folder / "libk2context.dylib"), "-Wl,-U,_PyList_New", *options],
        )

    def library(
        self,
        code: str,
        path: Path,
        *,
        rpaths: Sequence[str] = RPATHS,
        options: Sequence[str] = (),
        **how: str,
    ) -> bytes:
        """Compiles and links C code, with libSystem."""
        system = (f"-L{self._folder}", "-lSystem")
        places = (f"-Wl,-rpath,{rpath}" for rpath in rpaths)
        return macos.link(code, path, *system, *places, *options, **how).read_bytes()

    def stub(self, name: str, symbol: str) -> Path:
        """A stub of a library, for the linker only."""
        path = self._folder / "stub.tbd"
        path.write_text(STUB % (name, symbol))
        return path


@pytest.fixture(scope="session")
def workshop(tmp_path_factory) -> Workshop:
    macos.require_linker()
    return Workshop(tmp_path_factory.mktemp("workshop"))


@dataclasses.dataclass
class Case:
    """A wheel that can be changed before it is written.

    Attributes:
      folder: the folder of the wheel.
      description: the wheel's description of itself.
      files: its files, without RECORD.
      reference: the reference for comparison.
    """

    folder: Path
    description: contents.Description
    files: dict[str, bytes]
    reference: expectations.Reference

    @property
    def path(self) -> Path:
        return self.folder / self.description.file_name

    def of_info(self, name: str) -> str:
        return f"{self.description.info}/{name}"

    def replace(self, name: str, old: str, new: str) -> None:
        """Replaces a text in one file of the metadata."""
        content = self.files[self.of_info(name)].decode()
        assert old in content
        self.files[self.of_info(name)] = content.replace(old, new).encode()

    def problems(self) -> list[expectations.Problem]:
        contents.pack(self.path, self.description, self.files)
        return list(verify(WheelFile(self.path), self.reference))

    def found(self) -> set[str]:
        """The names of the checks with findings."""
        return {problem.check for problem in self.problems()}


@pytest.fixture(scope="session")
def parts(workshop) -> dict[str, bytes]:
    return {EXTENSION: workshop.extension(), CONTEXT: workshop.context()}


@pytest.fixture
def case(tmp_path, workshop, parts) -> Case:
    tag = f"{TAG}-{TAG}-{toolchain.platform('2.13.0')}"
    description = dataclasses.replace(
        test_wheel_tools.case(built=toolchain.LABEL, patched_tree=TREE).description, tag=tag
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
    reference = expectations.Reference(python, {"add.metal": KERNEL}, TREE, (), torch, SYSTEM)
    return Case(tmp_path, description, files, reference)


def test_a_good_wheel_has_no_problems(case):
    assert case.problems() == []


# ---- the files


@pytest.mark.parametrize(
    "name",
    [
        "k2/notes.txt",
        "k2/lib/libother.dylib",
        "k2/lib/libk2context.a",
        "k2_mps_tests/__init__.py",
        "k2/extra.py",
    ],
)
def test_a_file_that_upstream_would_not_have(case, name):
    case.files[name] = b""
    [problem] = case.problems()
    assert (problem.check, problem.file) == ("files", name)


@pytest.mark.parametrize("name", ["k2/fsa.py", "k2/torch_version.py", EXTENSION])
def test_a_file_that_is_missing(case, name):
    del case.files[name]
    assert "files" in case.found()


@pytest.mark.parametrize(
    "name, old, new, wrong",
    [
        ("k2/torch_version.py", b"'2.13.0'", b"1", "k2/torch_version.py"),
        ("RECORD", rb"k2/fsa.py,.*\n", b"", "k2/fsa.py"),
        ("RECORD", rb"\Z", b"k2/gone.py,,\n", "k2/gone.py"),
    ],
)
def test_a_record_of_other_files(case, name, old, new, wrong):
    assert case.problems() == []
    with zipfile.ZipFile(case.path) as archive:
        files = {entry: archive.read(entry) for entry in archive.namelist()}
    name = name if name in files else case.of_info(name)
    files[name] = re.sub(old, new, files[name])
    with zipfile.ZipFile(case.path, "w") as archive:
        for entry, content in files.items():
            archive.writestr(entry, content)
    [problem] = verify(WheelFile(case.path), case.reference)
    assert (problem.check, problem.file) == ("record", wrong)


# ---- the metadata


@pytest.mark.parametrize(
    "file, old, new, check",
    [
        ("METADATA", "torch==2.13.0", "torch==2.12.0", "metadata"),
        ("METADATA", "torch==2.13.0", "torch>=2.13.0", "metadata"),
        ("METADATA", "Requires-Dist: torch==2.13.0\n", "", "metadata"),
        ("METADATA", "Name: k2\n", "Name: k3\n", "metadata"),
        ("METADATA", "Version: 1.0.dev", "Version: 1.1.dev", "metadata"),
        ("WHEEL", "macosx_14_0", "macosx_11_0", "tags"),
        ("WHEEL", "Purelib: false", "Purelib: true", "tags"),
        ("k2mps.json", TREE, TREE[::-1], "origin"),
        ("k2mps.json", '"dirty": false', '"dirty": true', "origin"),
        ("k2mps.json", "{", "", "origin"),
    ],
)
def test_metadata_that_is_wrong(case, file, old, new, check):
    case.replace(file, old, new)
    assert case.found() == {check}


@pytest.mark.parametrize(
    "torch, tag, found", [("2.15.0", "15_0", set()), ("2.15.0", "14_0", {"tags"})]
)
def test_a_macos_that_is_too_old_for_torch(case, torch, tag, found):
    case.description = dataclasses.replace(
        test_wheel_tools.case(torch, patched_tree=TREE).description,
        tag=case.description.tag.replace("14_0", tag),
    )
    case.files = {name: one for name, one in case.files.items() if ".dist-info" not in name}
    case.files.update(contents.metadata_files(case.description))
    assert case.found() == found


def test_another_python_source(case):
    case.files["k2/fsa.py"] = b"import os\n"
    assert case.found() == {"python"}
    case.files["k2/fsa.py"] = b"pass\n"
    case.files[INIT] = b"__dev_version__ = '1'\nfrom _k2 import answer\n"
    assert case.found() == {"python"}


# ---- the Mach-O files


def damaged(case, content: bytes, name: str = CONTEXT) -> set[str]:
    case.files[name] = content
    return case.found()


def test_a_path_of_this_machines_project(case, workshop):
    reference = case.reference
    case.files[CONTEXT] = workshop.context(
        CONTEXT_CODE + 'const char file[] = "/srv/k2-mps/k2/fsa.cu";\n'
    )
    assert case.found() == set()
    case.reference = dataclasses.replace(reference, build_paths=("/srv/k2-mps",))
    assert case.found() == {"paths"}


def test_another_processor(case, workshop):
    content = workshop.library(
        "int k2_symbol(void) { return 0; }",
        workshop.torch / "x.dylib",
        target="x86_64-apple-macos14.0",
    )
    found = damaged(case, content)
    assert "machine" in found
    assert "machine" in damaged(case, b"\x7fELF not at all")


def test_another_platform(case, workshop):
    code = f"const char text[] = {KERNEL.strip()!r};".replace("'", '"')
    code = code.replace('";', '\\n"; int k2_symbol(void) { return 0; }')
    content = workshop.library(
        code,
        workshop.torch / "x.dylib",
        target="arm64-apple-ios17.0",
        name="@rpath/libk2context.dylib",
    )
    # lld signs only files for macOS.
    assert damaged(case, content) == {"platform", "signature"}


@pytest.mark.parametrize(
    "how, check",
    [
        ({"target": "arm64-apple-macos15.0"}, "minimum-os"),
        ({"name": "/usr/local/lib/libk2context.dylib"}, "install-name"),
        ({"rpaths": (*RPATHS, "/Library/torch/lib")}, "rpath"),
        ({"rpaths": ("@loader_path",)}, "libraries"),  # without an rpath to torch
        ({"options": ["-Wl,-no_adhoc_codesign"]}, "signature"),
        ({"kernel": KERNEL.replace("add", "sub")}, "kernels"),
        ({"code": CONTEXT_CODE + 'const char file[] = "/home/me/k2/fsa.cu";\n'}, "paths"),
    ],
)
def test_a_library_that_was_linked_wrongly(case, workshop, how, check):
    assert damaged(case, workshop.context(**how)) == {check}


@pytest.mark.parametrize(
    "rpath, found", [("$ORIGIN/k2/lib", False), ("/k2/lib", True), ("$ORIGIN:/k2/lib", True)]
)
def test_an_absolute_rpath_on_linux(case, tmp_path, rpath, found):
    (tmp_path / "x.c").write_text("int x(void) { return 0; }\n")
    command = [f"clang-{doctor.CLANG}", "-shared", "-fPIC", "x.c", "-o", "x.so"]
    subprocess.run([*command, f"-Wl,-rpath,{rpath}"], check=True, cwd=tmp_path)
    case.files = {"k2/lib/libk2fsa.so": (tmp_path / "x.so").read_bytes()}
    contents.pack(case.path, case.description, case.files)
    texts = [str(problem) for problem in images.rpath_problems(WheelFile(case.path))]
    assert texts == ["[rpath] k2/lib/libk2fsa.so: looks for libraries in /k2/lib"] * found


def test_the_same_rpath_twice(case, workshop):
    content = workshop.context(rpaths=RPATHS)
    once, twice = b"@loader_path/../../torch/lib\0", b"@loader_path\0"
    assert once in content
    content = content.replace(once, twice.ljust(len(once), b"\0"), 1)
    # The library no longer finds torch either, and the page's hash differs.
    assert "rpath" in damaged(case, content)


@pytest.mark.parametrize(
    "library, check",
    [("/usr/lib/libz.1.dylib", "libraries"), ("/usr/lib/libSystem.B.dylib", "symbols")],
)
def test_what_macos_does_not_have(case, workshop, library, check):
    code = CONTEXT_CODE + "int gone(void); int y(void) { return gone(); }\n"
    stub = workshop.stub(library, "_gone")
    assert damaged(case, workshop.context(code, options=[str(stub)])) == {check}


def test_a_symbol_that_torch_does_not_export(case, workshop, tmp_path):
    newer = tmp_path / "libtorch.dylib"
    workshop.library(TORCH_CODE + "int newer(void) { return 2; }\n", newer)
    code = CONTEXT_CODE + "int newer(void); int y(void) { return newer(); }\n"
    case.files[CONTEXT] = workshop.context(code, torch=newer)
    [problem] = case.problems()
    assert problem.check == "symbols"
    assert "@rpath/libtorch.dylib does not export _newer" in str(problem)


def test_a_weak_symbol_that_nobody_exports(case, workshop, tmp_path):
    newer = tmp_path / "libtorch.dylib"
    weak = "__attribute__((weak)) int newer(void) { return 2; }\n"
    workshop.library(TORCH_CODE + weak, newer)
    code = CONTEXT_CODE + "int newer(void); int y(void) { return newer(); }\n"
    content = workshop.context(code, torch=newer)
    assert damaged(case, content) == {"symbols"}


def test_an_undefined_symbol_that_is_not_pythons(case, workshop):
    code = EXTENSION_CODE + "int other(void); int y() { return other(); }\n"
    options = ["-Wl,-U,_other"]
    content = workshop.extension(code, options)
    assert damaged(case, content, EXTENSION) == {"symbols"}
    # A name like Python's does not make a symbol Python's.
    code = code.replace("other", "PyList_Gone")
    content = workshop.extension(code, ["-Wl,-U,_PyList_Gone"])
    assert damaged(case, content, EXTENSION) == {"symbols"}


def test_a_library_of_k2_that_the_wheel_lacks(case):
    del case.files[CONTEXT]
    assert case.found() == {"libraries", "kernels"}


def test_a_changed_page(case):
    content = bytearray(case.files[CONTEXT])
    where = content.index(KERNEL.encode()) - 1
    content[where] ^= 1
    assert damaged(case, bytes(content)) == {"signature"}


@pytest.mark.parametrize(
    "content, fault",
    [
        (b"\xfa\xde\x0c\xc0" + bytes(4), "its signature is cut off"),
        (bytes(100), "its signature cannot be read"),
    ],
)
def test_a_signature_that_is_none(content, fault):
    assert images.signature_fault(content, 0) == fault


def test_a_kernel_that_changed_after_the_build(case):
    """The wheel of one text, against a tree with another one, in which only a comment differs."""
    changed = {"add.metal": KERNEL + "// more\n"}
    case.reference = dataclasses.replace(case.reference, kernels=changed)
    [problem] = case.problems()
    assert problem.check == "kernels"
    assert "the text of add.metal is not in it as in the tree" in str(problem)


# ---- the command


@pytest.mark.parametrize(
    "name, text",
    [
        ("k2.whl", "is not a wheel of k2-mps"),
        ("k2-1.0+mps.cpu.torch2.13.0-cp39-cp39-macosx_14_0_arm64.whl", "is not for cp3"),
    ],
)
def test_what_cannot_be_verified(sandbox, tmp_path, name, text):  # noqa: F811
    path = tmp_path / name
    zipfile.ZipFile(path, "w").close()
    code = errors.CheckFailedError.exit_code
    assert text in sandbox.fails(code, "wheel", "verify", str(path))
