"""Tests single parts of the toolchain for macOS, with small libraries instead of torch.

ci/run makes a real wheel for macOS with the toolchain.
"""

import subprocess
import sys
import types
from pathlib import Path

import pytest
from click import testing
from k2mps.build import builder, interpreter, toolchain
from k2mps.cli import command_line, session
from k2mps.core import errors

from k2_mps_tests.tooling import macos, support

OBJC = "/usr/lib/libobjc.A.dylib"
LINKER = "dyld_stub_binder"  # a symbol that every library binds


@pytest.fixture(scope="module", autouse=True)
def _linker():
    macos.require_linker()


@pytest.fixture
def torch(tmp_path):
    """The folder of a small torch, with two libraries."""
    system, objc = tmp_path / "libSystem.tbd", tmp_path / "libobjc.tbd"
    system.write_text(toolchain.stub(toolchain.SYSTEM, ["_abort", "_newer", LINKER], []))
    objc.write_text(toolchain.stub(OBJC, ["_objc_retain"], []))
    package = tmp_path / "torch"
    (package / "lib").mkdir(parents=True)
    code = "void abort(void); int core(void) { abort(); return 1; }"
    core = macos.link(code, package / "lib/core.dylib", system)
    macos.link(
        "int core(void); int objc_retain(void);int rest(void) { return core() + objc_retain(); }",
        package / "lib/rest.dylib",
        core,
        objc,
        system,
    )
    return package


def test_what_macos_exports_is_what_torch_imports(torch):
    found = toolchain.system_symbols(torch)
    assert found[OBJC] == {"_objc_retain"}
    assert "_abort" in found[toolchain.SYSTEM]
    # No library of torch imports _newer, so an older macOS may lack this symbol.
    assert "_newer" not in found[toolchain.SYSTEM]
    # The toolchain adds these symbols, because k2 needs them and torch does not import them.
    assert "__availability_version_check" in found[toolchain.SYSTEM]
    assert "__ZSt19uncaught_exceptionsv" in found["/usr/lib/libc++.1.dylib"]
    assert not [name for name in found if name.startswith("@")]


def test_symbols_of_torch_are_grouped_by_library(torch):
    found = toolchain.symbols_of(torch)
    core = {"exports": ["_core"], "imports": {toolchain.SYSTEM: ["_abort", LINKER]}}
    assert found["core.dylib"] == core
    system = {toolchain.SYSTEM: [LINKER]}
    imported = {"@rpath/core.dylib": ["_core"], OBJC: ["_objc_retain"], **system}
    assert found["rest.dylib"] == {"exports": ["_rest"], "imports": imported}


def test_the_symbols_of_torch_are_read_once(torch):
    found = toolchain.symbols_of(torch)
    for library in (torch / "lib").glob("*.dylib"):
        library.unlink()
    assert toolchain.symbols_of(torch) == found


def test_a_library_also_exports_what_it_reexports(tmp_path):
    inner, outer = tmp_path / "usr/lib/inner.tbd", tmp_path / "outer.tbd"
    inner.parent.mkdir(parents=True)
    inner.write_text(toolchain.stub("/usr/lib/inner.dylib", ["_deep"], []))
    outer.write_text(toolchain.stub("/usr/lib/outer.dylib", ["_flat"], ["/usr/lib/inner.dylib"]))
    system = tmp_path / "system.tbd"
    system.write_text(toolchain.stub(toolchain.SYSTEM, [LINKER], []))
    built = macos.link(
        "int deep(void); int flat(void);int both(void) { return deep() + flat(); }",
        tmp_path / "both.dylib",
        outer,
        system,
        "-isysroot",
        tmp_path,
    )
    found = toolchain.imports(toolchain.parse(built))
    assert "_flat" in found["/usr/lib/outer.dylib"]
    assert "_deep" in set().union(*found.values())
    # The linker refuses a symbol that no library exports.
    with pytest.raises(subprocess.CalledProcessError) as failure:
        macos.link("int gone(void); int f(void) { return gone(); }", tmp_path / "f.dylib", system)
    assert "undefined symbol: gone" in failure.value.stderr


def test_the_symbols_of_a_python_of_macos(tmp_path):
    """In a library of macOS, each name starts with an additional "_"."""
    system = tmp_path / "system.tbd"
    system.write_text(toolchain.stub(toolchain.SYSTEM, [LINKER], []))
    code = (
        "int PyLong_X(void) { return 1; } int _Py_Y(void) { return 2; } int z(void) { return 3; }"
    )
    library = macos.link(code, tmp_path / "python.dylib", system)
    python = interpreter.Interpreter("python", "3.12.1", "include", str(library))
    assert python.symbols() == {"PyLong_X", "_Py_Y"}


# A stand-in for macOS's os/base.h, which the headers of signposts include.
BASE = '#define __BEGIN_DECLS extern "C" {\n#define __END_DECLS }\n#define OS_EXPORT extern\n'
SIGNPOSTS = """\
#include <os/signpost.h>
void f(const char *text) {
  os_log_t log = os_log_create("k2", OS_LOG_CATEGORY_POINTS_OF_INTEREST);
  os_signpost_id_t id = os_signpost_id_generate(log);
  os_signpost_interval_begin(log, id, "name", "%{public}s", text);
  os_signpost_interval_end(log, id, "name");
}
"""


def test_signposts_bind_the_symbols_of_macos(tmp_path):
    support.write(tmp_path, {"include/os/base.h": BASE})
    emulator = toolchain.FILES.parents[3] / "emulator/include"
    headers = [f"-I{folder}" for folder in (toolchain.FILES, emulator, tmp_path / "include")]
    symbols = {
        "_os_log_create",
        "_os_signpost_id_generate",
        "_os_signpost_enabled",
        "__os_signpost_emit_with_name_impl",
    }
    system = tmp_path / "system.tbd"
    system.write_text(toolchain.stub(toolchain.SYSTEM, {*symbols, "dyld_stub_binder"}, []))
    options = (system, "-fno-stack-protector", *headers)
    built = macos.link(SIGNPOSTS, tmp_path / "f.dylib", *options, suffix=".cc")
    binary = toolchain.parse(built)
    assert toolchain.imports(binary)[toolchain.SYSTEM] >= symbols
    # The name and the format of a signpost are in this section.  Instruments reads both strings
    # there, because the records of signposts do not contain these strings.
    strings = bytes(binary.get_section("__oslogstring").content)
    assert strings.split(b"\0")[:2] == [b"name", b"%{public}s"]
    # The name of a signpost must be a string literal.
    with pytest.raises(subprocess.CalledProcessError) as failure:
        code = SIGNPOSTS.replace('"name"', "text")
        macos.link(code, tmp_path / "g.dylib", *headers, suffix=".cc")
    assert "error: expected" in failure.value.stderr


def test_available_asks_the_system_for_its_version(tmp_path):
    """clang compiles `@available` to a call of a function, which the toolchain itself supplies."""
    code = "int f(void) { if (__builtin_available(macOS 15.0, *)) return 1; return 0; }"
    with pytest.raises(subprocess.CalledProcessError) as failure:
        macos.link(code, tmp_path / "f.dylib")
    assert "undefined symbol: __isPlatformVersionAtLeast" in failure.value.stderr
    system = tmp_path / "system.tbd"
    asked = "__availability_version_check"
    system.write_text(toolchain.stub(toolchain.SYSTEM, {asked, "dyld_stub_binder"}, []))
    built = macos.link(code, tmp_path / "f.dylib", toolchain.FILES / "available.cc", system)
    binary = toolchain.parse(built)
    assert asked in toolchain.imports(binary)[toolchain.SYSTEM]
    assert {symbol.name for symbol in binary.exported_symbols} == {"_f"}


def test_a_folder_without_an_sdk_is_refused(tmp_path):
    made = toolchain.Toolchain(tmp_path, "cp311", "0" * 64)
    with pytest.raises(errors.K2mpsError, match="is no SDK for macOS"):
        toolchain.with_sdk(made, tmp_path)
    (tmp_path / "SDKSettings.json").write_text("{}")
    found = toolchain.with_sdk(made, tmp_path)
    assert found.settings()["CMAKE_OSX_SYSROOT"] == str(tmp_path.resolve())
    assert found.key != made.key


def _run(words: list[str], **options):
    obj = session.Session()
    return testing.CliRunner().invoke(command_line.main, words, obj=obj, **options)


@pytest.mark.skipif(sys.platform == "darwin", reason="--sdk is for cross builds, not on a Mac")
def test_with_an_sdk_no_wheel_is_made(tmp_path, monkeypatch):
    asked = []

    def build(environment, checkout, request):
        asked.append(request)
        return types.SimpleNamespace(directory="made")

    monkeypatch.setattr(builder, "check_system", lambda *_: None)
    monkeypatch.setattr(builder, "build", build)
    monkeypatch.setattr(session.Session, "obtain", lambda _: None)
    words = ["wheel", "--target", "macos-arm64", "--quick", "--sdk", str(tmp_path)]
    result = _run(words, catch_exceptions=False)
    [request] = asked
    assert (request.sdk, request.crossed, request.quick) == (tmp_path, True, True)
    assert f"made: compiled and linked with {tmp_path.name}; no wheel" in result.output


@pytest.mark.skipif(sys.platform == "darwin", reason="--metallib is for cross builds")
def test_only_a_cross_build_compiles_kernels_on_linux(monkeypatch):
    asked = []
    monkeypatch.setattr(builder, "check_system", lambda _, request: asked.append(request))
    monkeypatch.setattr(session.Session, "obtain", lambda _: sys.exit(7))
    words = ["wheel", "--metallib"]
    result = _run(words)
    assert result.exit_code == 2 and "--target macos-arm64" in result.output
    result = _run([*words, "--target", "macos-arm64"])
    [request] = asked
    assert (result.exit_code, request.metallib, request.crossed) == (7, True, True)
    assert request.label == "mps-macos-arm64-wheel-metallib"


def configure(folder: Path, commands: str, macos: str = "14.0") -> None:
    """Configures a project for a version of macOS, in folder/build."""
    (folder / "sdk").mkdir(exist_ok=True)
    settings = {
        "CMAKE_TOOLCHAIN_FILE": toolchain.FILES / "toolchain.cmake",
        "CMAKE_OSX_SYSROOT": folder / "sdk",
        "CMAKE_OSX_DEPLOYMENT_TARGET": macos,
        "CMAKE_CXX_COMPILER_WORKS": "ON",
        "CMAKE_EXPORT_COMPILE_COMMANDS": "ON",
    }
    support.cmake(folder, commands, settings)


@pytest.mark.parametrize("version", ["14.0", "15.0"])
def test_another_run_of_cmake_changes_no_command(tmp_path, version):
    (tmp_path / "x.cc").write_text("int x() { return 0; }\n")
    commands = []
    for _ in range(2):
        configure(tmp_path, "add_library(x SHARED x.cc)", version)
        commands.append((tmp_path / "build/compile_commands.json").read_text())
    assert f"arm64-apple-macos{version}" in commands[0]
    assert commands[0] == commands[1]


def test_the_linker_strips_a_module(tmp_path):
    """The linker strips the module, so a build does not need LLVM's program `strip`."""
    code = "__attribute__((noinline)) static int local(int x) { return x * x; }\n"
    (tmp_path / "x.cc").write_text(code + "int shared(int x) { return local(x) + 1; }\n")
    configure(
        tmp_path,
        "add_library(x MODULE x.cc)\ntarget_link_options(x PRIVATE -nostdlib)\n"
        # pybind11 runs strip if CMake has set CMAKE_STRIP.
        "if(CMAKE_STRIP)\n  message(FATAL_ERROR ${CMAKE_STRIP})\nendif()",
    )
    support.ninja(tmp_path)
    [library] = (tmp_path / "build").glob("libx.*")
    binary = toolchain.parse(library)
    names = {symbol.name for symbol in binary.symbols}
    assert "__Z6sharedi" in names
    assert "__ZL5locali" not in names
