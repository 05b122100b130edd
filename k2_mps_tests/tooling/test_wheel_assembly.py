"""The tool assembles the toolchain for macOS, from small wheels that stand in for torch and zig."""

import dataclasses
import shutil
import sys
from pathlib import Path

import pytest
from k2mps.build import interpreter, toolchain
from k2mps.build.build_tree import BuildTree
from k2mps.build.environment import Environment
from k2mps.build.request import Request
from k2mps.core import errors
from k2mps.core.project import Project
from k2mps.stack.checkout import Checkout
from packaging.requirements import Requirement

from k2_mps_tests.tooling import macos, stand_in, support, wheel_for_tests

ROOT = support.TOOLS.parent
TORCH = Requirement("torch==2.13.0")
LINKER = "dyld_stub_binder"  # a symbol that every library binds
FRAMEWORKS = "/System/Library/Frameworks"
FOUNDATION = f"{FRAMEWORKS}/Foundation.framework/Versions/C/Foundation"
CORE_FOUNDATION = f"{FRAMEWORKS}/CoreFoundation.framework/Versions/A/CoreFoundation"
OBJC = "/usr/lib/libobjc.A.dylib"
# What the small torch calls, by library.
CALLED = {
    toolchain.SYSTEM: "abort",
    OBJC: "objc_retain",
    FOUNDATION: "NSLog",
    CORE_FOUNDATION: "CFRetain",
}


def library_of_torch(folder: Path) -> bytes:
    """Links libtorch.dylib in a folder; it calls one function of each library of `CALLED`."""
    macos.require_linker()
    stubs = []
    for number, (library, function) in enumerate(CALLED.items()):
        stub = folder / f"{number}.tbd"
        stub.write_text(toolchain.stub(library, [f"_{function}", LINKER], []))
        stubs.append(stub)
    declared = "".join(f"void {function}(void); " for function in CALLED.values())
    called = "".join(f"{function}(); " for function in CALLED.values())
    code = f"{declared} void torch(void) {{ {called}}}"
    return macos.link(code, folder / "libtorch.dylib", *stubs).read_bytes()


@pytest.fixture(scope="module")
def wheels(tmp_path_factory) -> Path:
    """A folder with a wheel of torch for macOS and this Python, and with a wheel of zig."""
    folder = tmp_path_factory.mktemp("wheels")
    tag = interpreter.find().tag
    torch = {
        "torch/__init__.py": b"raise ImportError\n",
        "torch/include/ATen/ATen.h": b"",
        "torch/lib/libtorch.dylib": library_of_torch(tmp_path_factory.mktemp("library")),
        "torch/share/cmake/Torch/TorchConfig.cmake": b"",
    }
    where = f"{tag}-{tag}-{toolchain.platform('2.13.0')}"
    wheel_for_tests.make(folder, "2.13.0", "torch", where, torch, needs="not-there")
    zig = {
        "ziglang/zig": b"",
        "ziglang/lib/libc/include/any-macos-any/stdio.h": b"",
        "ziglang/lib/libcxx/include/vector": b"",
        "ziglang/lib/libcxxabi/include/cxxabi.h": b"",
    }
    for version in ("0.14.1", "0.15.0"):
        wheel_for_tests.make(folder, version, "ziglang", files=zig)
    return folder


@pytest.fixture
def here(tmp_path, wheels, monkeypatch) -> Environment:
    """The environment of a project whose pip has only the small wheels."""
    root = tmp_path / "project"
    stand_in.make_environment(root / ".venv")
    shutil.copy(ROOT / "pyproject.toml", root)
    shutil.copy(ROOT / "upstream.toml", root)
    shutil.copytree(ROOT / "emulator/include", root / "emulator/include")
    shutil.copytree(wheels, tmp_path / "wheels")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    return Environment(Project(root))


def test_a_toolchain_has_the_parts_of_its_sources(here):
    python = interpreter.find(here.python)
    made = toolchain.assemble(here, TORCH, python)
    assert (made.python, made.sdk) == (python.tag, None)
    assert made.directory.parent == here.project.build_root / "macos-arm64"
    for name in (
        "python/Python.h",
        "python-symbols",
        "sdk/SDKSettings.json",
        "sdk/System/Library/Frameworks/Foundation.framework/Headers/Foundation.h",
        "sdk/System/Library/Frameworks/Metal.framework/Headers/Metal.h",
        "sdk/System/Library/Frameworks/Metal.framework/Metal.tbd",
        "sdk/usr/include/c++/v1/cxxabi.h",
        "sdk/usr/include/c++/v1/vector",
        "sdk/usr/include/os/log.h",
        "sdk/usr/include/os/signpost.h",
        "sdk/usr/include/os/signpost_emit.h",
        "sdk/usr/include/stdio.h",
        "sdk/usr/lib/libSystem.tbd",
        "sdk/usr/lib/libc++.tbd",
        "site/torch/include/ATen/ATen.h",
        "site/torch/share/cmake/Torch/TorchConfig.cmake",
    ):
        assert (made.directory / name).is_file(), name
    sdk = made.directory / "sdk"
    foundation = sdk / "System/Library/Frameworks/Foundation.framework/Foundation.tbd"
    reexported = [CORE_FOUNDATION, OBJC]
    assert foundation.read_text() == toolchain.stub(FOUNDATION, ["_NSLog"], reexported)
    assert '"_objc_retain"' in (sdk / "usr/lib/libobjc.A.tbd").read_text()
    ours = toolchain.FILES / "pyconfig.h"
    assert (made.directory / "python/pyconfig.h").read_bytes() == ours.read_bytes()
    symbols = (made.directory / "python-symbols").read_text().splitlines()
    assert "-Wl,-U,_PyList_New" in symbols and symbols == sorted(symbols)
    # The unpacked wheels have only the parts that a build needs.
    left = [path for path in made.directory.parent.rglob("*") if path.suffix == ".whl"]
    assert not left and not list(made.directory.parent.rglob("zig"))
    assert not (toolchain.fetch_torch(here, TORCH, python) / "__init__.py").exists()
    # CMake asks this program for the torch of the build.
    asked = "import torch; print(torch.__version__, torch.__file__)"
    told = support.output(made.directory / "bin/python", "-c", asked).split()
    assert told[0] == "2.13.0"
    assert Path(told[1]).samefile(made.directory / "site/torch/__init__.py")


def test_a_toolchain_is_assembled_again_only_if_its_sources_change(here, tmp_path):
    python = interpreter.find(here.python)
    without_headers = dataclasses.replace(python, include=str(tmp_path / "include"))
    with pytest.raises(errors.RequirementMissingError, match="headers of Python .* are missing"):
        toolchain.assemble(here, TORCH, without_headers)
    made = toolchain.assemble(here, TORCH, python)
    project = here.project.root / "pyproject.toml"
    before = project.read_text()
    support.edit(project, "ziglang==0.14.1", "ziglang==0.15.0")
    found = [toolchain.assemble(here, TORCH, python)]
    project.write_text(before)
    # Without the wheels, pip fails.
    shutil.rmtree(tmp_path / "wheels")
    assert toolchain.assemble(here, TORCH, python) == made
    others = [
        dataclasses.replace(python, number=f"{python.version}.99"),
        dataclasses.replace(python, program=sys.executable),
        without_headers,
    ]
    shutil.copytree(python.include, tmp_path / "include")
    found += [toolchain.assemble(here, TORCH, other) for other in others]
    with (here.project.root / "emulator/include/os/log.h").open("a") as header:
        header.write("// changed\n")
    found.append(toolchain.assemble(here, TORCH, python))
    for one in found:
        assert one.directory.name.endswith(one.key[:12])
    assert len({made.directory, *(one.directory for one in found)}) == 6


@pytest.fixture
def checkout(tmp_path) -> Checkout:
    """A checkout whose CMake writes torch_version.py, and needs no compiler."""
    k2 = tmp_path / "k2"
    k2.mkdir()
    support.git(k2, "init", "--quiet")
    written = "${CMAKE_CURRENT_SOURCE_DIR}/k2/python/k2/torch_version.py"
    commands = f'project(k2 NONE)\nfile(WRITE "{written}" "crossed")\n'
    text = f"cmake_minimum_required(VERSION 3.18)\n{commands}"
    support.commit(k2, "k2", {"CMakeLists.txt": text, "k2/python/k2/torch_version.py": "own"})
    return Checkout(k2)


def test_a_crossed_build_is_for_the_python_and_the_torch_of_the_toolchain(here, checkout, tmp_path):
    (here.project.root / "CMakeLists.overlay.cmake").touch()
    request = Request(crossed=True, for_wheel=True, torch="2.13.0")
    tree = BuildTree(here, checkout, request, "edited")
    python = interpreter.find(here.python)
    assert (tree.torch, tree.python_tag) == ("2.13.0", python.tag)
    start = f"mps-macos-arm64-wheel-torch2.13.0-{python.tag}-edited-"
    assert tree.name.startswith(start)
    assert tree.must_configure()
    tree.directory.mkdir()
    tree.configure()
    assert not tree.must_configure()
    made = toolchain.assemble(here, TORCH, python)
    cache = (tree.directory / "CMakeCache.txt").read_text()
    assert f"={made.directory / 'sdk'}\n" in cache
    assert "COMPILER:" not in cache  # toolchain.cmake chooses the compilers
    # `import k2` in .venv reads the checkout's file, so this file is for the torch of .venv.
    assert (tree.directory / "torch_version.py").read_text() == "crossed"
    assert (checkout.directory / "k2/python/k2/torch_version.py").read_text() == "own"
    assert tree.origin(None)["headers"]["ziglang"] == "0.14.1"
    assert tree.origin(None)["built"] == toolchain.LABEL
    assert (tree.origin(None)["device"], tree.origin(None)["dirty"]) == ("mps", True)
    # A change of the toolchain configures again.
    with (here.project.root / "emulator/include/os/log.h").open("a") as header:
        header.write("// changed\n")
    assert BuildTree(here, checkout, request, "edited").must_configure()
    sdk = tmp_path / "MacOSX.sdk"
    support.write(sdk, {"SDKSettings.json": "{}"})
    with_sdk = BuildTree(here, checkout, dataclasses.replace(request, sdk=sdk), "edited")
    assert with_sdk._settings()["CMAKE_OSX_SYSROOT"] == str(sdk.resolve())
