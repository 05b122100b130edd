"""Builds third-party extensions unchanged and runs them on the emulated device.

    python tests/extensions.py FOLDER              # all that are there
    python tests/extensions.py FOLDER NAME ...     # some

FOLDER has the sources; the command fetches none.  `extensions.toml` gives for
each extension its path in FOLDER, its build, its tests, and the expected outcome
with the reason for an outcome other than "passes".  The command fails if an
outcome is not the expected one, and lists extensions that FOLDER lacks.

Builds are in folders of their own and leave the sources unchanged.
"""

import argparse
import dataclasses
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

import mps_emulator

try:
    import tomllib
except ModuleNotFoundError:  # before Python 3.11
    import tomli as tomllib

EXPECTED = pathlib.Path(__file__).with_suffix(".toml")

# The limit for the build, and for the run, of one extension.
_SECONDS = 1800

# The files that Hugging Face's kernel-builder gives to each kernel, written for
# the emulator: a module that `torch_binding.cpp` registers, and a library of
# kernels compiled from the sources.
_REGISTRATION = """
#pragma once
#include <Python.h>
#define TORCH_LIBRARY_EXPAND(NAME, MODULE) TORCH_LIBRARY(NAME, MODULE)
#define TORCH_LIBRARY_IMPL_EXPAND(NAME, DEVICE, MODULE) \\
  TORCH_LIBRARY_IMPL(NAME, DEVICE, MODULE)
#define EMULATED_INIT(NAME) PyInit_##NAME
#define EMULATED_TEXT(NAME) #NAME
#define REGISTER_EXTENSION(NAME) EMULATED_REGISTER(NAME)
#define EMULATED_REGISTER(NAME)                                             \\
  PyMODINIT_FUNC EMULATED_INIT(NAME)() {                                    \\
    static struct PyModuleDef module = {PyModuleDef_HEAD_INIT,              \\
                                        EMULATED_TEXT(NAME), nullptr, 0};   \\
    return PyModule_Create(&module);                                        \\
  }
"""
_LIBRARY_HEADER = """
#pragma once
#import <Foundation/Foundation.h>
#import <Metal/Metal.h>
namespace emulated_library {
id<MTLLibrary> createLibrary(id<MTLDevice> device, NSError **error);
}
"""
# Each source is a program of its own, as it is for a linker of metallibs.
_LIBRARY = """
#include "library.h"
@interface EmulatedLibrary : NSObject <MTLLibrary> {
 @public
  NSMutableArray *_parts;
}
@end
@implementation EmulatedLibrary
@synthesize label = _label;
- (id)device {
  return [_parts[0] device];
}
- (id)functionNames {
  NSMutableArray *names = [NSMutableArray array];
  for (id part in _parts)
    for (id name in [part functionNames]) [names addObject:name];
  return names;
}
- (id)partWith:(NSString *)name {
  for (id part in _parts)
    if ([[part functionNames] containsObject:name]) return part;
  return _parts[0];
}
- (id)newFunctionWithName:(NSString *)name {
  return [[self partWith:name] newFunctionWithName:name];
}
- (id)newFunctionWithName:(NSString *)name
           constantValues:(MTLFunctionConstantValues *)values
                    error:(NSError **)error {
  return [[self partWith:name] newFunctionWithName:name
                                    constantValues:values
                                             error:error];
}
@end
id<MTLLibrary> emulated_library::createLibrary(id<MTLDevice> device,
                                               NSError **error) {
  EmulatedLibrary *library = [[EmulatedLibrary alloc] init];
  library->_parts = [[NSMutableArray alloc] init];
  static const char *const sources[] = {SOURCES};
  for (const char *source : sources) {
    id part = [device newLibraryWithSource:[NSString stringWithUTF8String:source]
                                   options:nil
                                     error:error];
    if (!part) return nil;
    [library->_parts addObject:part];
  }
  return (id)library;
}
"""
_SETTINGS = """
#define METAL_KERNEL
#define EMBEDDED_METALLIB_HEADER "library.h"
#define EMBEDDED_METALLIB_NAMESPACE emulated_library
"""
_OPS = """
import torch
from . import {module}
ops = torch.ops.{module}
def add_op_namespace_prefix(name):
    return "{module}::" + name
"""
# The tests load a kernel of the hub by its name.
_KERNELS = """
import importlib
def get_kernel(name, **_):
    return importlib.import_module(name.rsplit("/", 1)[-1].replace("-", "_"))
get_local_kernel = get_kernel
"""

_BUILD = """
import sys
from torch.utils import cpp_extension
name, folder, includes, options, *sources = sys.argv[1:]
import mps_emulator
flags = mps_emulator.cpp_extension_flags()
flags["extra_include_paths"] += [path for path in includes.split(":") if path]
flags["extra_cflags"] += options.split()
cpp_extension.load(name, sources, build_directory=folder, **flags)
"""


class Failure(Exception):
    """A failed step: its name, and the end of its log."""


@dataclasses.dataclass
class Extension:
    """An entry of extensions.toml.

    path:     the path of its folder or source in FOLDER.
    kind:     "source" (one .mm, torch's cpp_extension.load), "setup" (its own
        setup.py), or "kernel" (a build.toml of Hugging Face's kernel-builder).
    tests:    the arguments of pytest for its own tests, or "".
    check:    Python code that runs it, where it has no tests for a Mac.
    expected: "passes", "fails" or "does not build".
    reason:   the reason for an expectation other than "passes".
    says:     a part of the log of that outcome.
    """

    name: str
    path: str
    kind: str
    tests: str = ""
    check: str = ""
    expected: str = "passes"
    reason: str = ""
    says: str = ""


def _environment(paths):
    """The environment variables of setup.py, cpp_extension and the tests."""
    flags = mps_emulator.cpp_extension_flags()
    include = ["-I" + path for path in flags["extra_include_paths"]]
    return {
        **os.environ,
        "CXX": os.environ.get("MPS_EMULATOR_TEST_CLANG", "clang++-19"),
        "CC": os.environ.get("MPS_EMULATOR_TEST_CLANG", "clang++-19").replace("++", ""),
        "CFLAGS": shlex.join(flags["extra_cflags"] + include),
        "LDFLAGS": shlex.join(flags["extra_ldflags"]),
        "PATH": os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "MAX_JOBS": "2",
    }


def _run(command, folder, paths, log):
    with open(log, "a") as output:
        try:
            result = subprocess.run(
                command,
                cwd=folder,
                env=_environment(paths),
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                timeout=_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise Failure(f"not finished after {_SECONDS} s") from None
    return result.returncode


def _compile(name, folder, includes, options, sources, log):
    folder.mkdir(parents=True, exist_ok=True)
    arguments = [name, folder, ":".join(map(str, includes)), " ".join(map(str, options)), *sources]
    command = [sys.executable, "-c", _BUILD, *map(str, arguments)]
    if _run(command, folder, [], log) != 0:
        raise Failure("the compiler refuses it")
    return folder / f"{name}.so"


# ---- kinds


def _build_source(extension, source, work, log):
    name = source.stem
    built = _compile(name, work / "build", [], [], [source], log)
    shutil.copy(built, work)
    return [work]


def _build_setup(extension, source, work, log):
    copy = work / "source"  # setup.py writes beside itself
    shutil.copytree(source, copy)
    if _run([sys.executable, "setup.py", "build_ext", "--inplace"], copy, [], log) != 0:
        raise Failure("setup.py fails")
    return [copy]


def _expanded(path, folders, seen):
    """The text of a Metal source, with files that it includes by name inlined.

    newLibraryWithSource takes one text; a metallib would be compiled from files.
    """
    path = path.resolve()
    if path in seen:
        return ""
    seen.add(path)

    def include(match):
        for folder in [path.parent, *folders]:
            if (folder / match[1]).is_file():
                return _expanded(folder / match[1], folders, seen)
        return match[0]

    text = re.sub(r"^\s*#pragma once\b.*$", "", path.read_text(), flags=re.M)
    return re.sub(r'^\s*#include\s+"([^"]+)".*$', include, text, flags=re.M) + "\n"


def _build_kernel(extension, source, work, log):
    settings = tomllib.loads((source / "build.toml").read_text())
    name = settings["general"]["name"].replace("-", "_")
    module = f"_{name}_emulated"
    package = work / name
    shutil.copytree(source / "torch-ext" / name, package)
    (package / "_ops.py").write_text(_OPS.format(module=module))
    (work / "kernels.py").write_text(_KERNELS)
    generated = work / "generated"
    generated.mkdir()
    (generated / "registration.h").write_text(_REGISTRATION)

    sources = [path for path in settings["torch"]["src"] if path.endswith(".cpp")]
    includes = [generated, source / "torch-ext"]
    shaders = []
    for part in settings["kernel"].values():
        if part["backend"] == "metal":
            sources += [path for path in part["src"] if path.endswith((".mm", ".cpp"))]
            shaders += [path for path in part["src"] if path.endswith(".metal")]
            includes += [source / path for path in part.get("include", [])]
    texts = [_expanded(source / path, includes, set()) for path in shaders]
    literals = ", ".join(f'R"METAL({text})METAL"' for text in texts)
    (generated / "library.h").write_text(_LIBRARY_HEADER)
    (generated / "library.mm").write_text(_LIBRARY.replace("SOURCES", literals))
    (generated / "settings.h").write_text(_SETTINGS)
    options = ["-include", generated / "settings.h", "-Werror=protocol"]
    sources = [generated / "library.mm", *(source / path for path in sources)]
    built = _compile(module, work / "build", includes, options, sources, log)
    shutil.copy(built, package)
    return [work]


_KINDS = {"source": _build_source, "setup": _build_setup, "kernel": _build_kernel}


# ---- outcomes


def _run_tests(extension, source, work, paths, log):
    """Runs the extension's own tests; returns {test: whether it failed}."""
    copy = work / "tests"
    shutil.copytree(source / "tests", copy)
    report = work / "report.txt"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rA", "--tb=line"]
    command += ["-p", "mps_emulator.pytest_plugin", *shlex.split(extension.tests)]
    _run(command, copy, paths, report)
    text = report.read_text(errors="replace")
    with open(log, "a") as file:
        file.write(text)
    outcomes = dict(
        (name, outcome) for outcome, name in re.findall(r"^(PASSED|FAILED|ERROR) (\S+)", text, re.M)
    )
    if not outcomes:
        raise Failure("pytest ran no test")
    return outcomes


def judge(extension, source, work):
    """Builds and runs an extension.

    Returns:
      (builds, outcome, text): whether the extension builds; "passes", "fails" or
      "does not build"; and a line of details.
    """
    log = work / "log.txt"
    try:
        paths = _KINDS[extension.kind](extension, source, work, log)
    except Failure as error:
        return False, "does not build", str(error)
    try:
        lines = []
        if extension.tests:
            outcomes = _run_tests(extension, source, work, paths, log)
            failed = [name for name, outcome in outcomes.items() if outcome != "PASSED"]
            lines.append(f"{len(outcomes) - len(failed)} of {len(outcomes)} tests pass")
            if failed:
                return True, "fails", "; ".join([*lines, "failed: " + " ".join(failed)])
        if extension.check:
            code = _run([sys.executable, "-c", extension.check], work, paths, log)
            if code != 0:
                return True, "fails", "; ".join([*lines, f"the check ends with {code}"])
            lines.append("the check passes")
        return True, "passes", "; ".join(lines)
    except Failure as error:
        return True, "fails", str(error)


def read_expected(path=EXPECTED):
    with open(path, "rb") as file:
        return [Extension(name, **entry) for name, entry in tomllib.load(file).items()]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path, help="has the sources")
    parser.add_argument("names", nargs="*", help="of extensions (default: all)")
    parser.add_argument("--keep", type=pathlib.Path, help="a new folder for builds and logs")
    options = parser.parse_args(arguments)
    extensions = read_expected()
    unknown = set(options.names) - {extension.name for extension in extensions}
    if unknown:
        parser.error(f"{EXPECTED.name} has no {', '.join(sorted(unknown))}")
    wrong = 0
    print(f"{'extension':<34} {'builds':<7} {'result':<15} {'seconds':>7}  (emulated)")
    with tempfile.TemporaryDirectory() as temporary:
        root = options.keep or pathlib.Path(temporary)
        for extension in extensions:
            if options.names and extension.name not in options.names:
                continue
            source = (options.folder / extension.path).resolve()
            if not source.exists():
                print(f"{extension.name:<34} -       not there: {extension.path}")
                continue
            # A compiler's options come apart at spaces.
            work = root / re.sub(r"\W+", "-", extension.name)
            work.mkdir(parents=True)
            begin = time.monotonic()
            builds, outcome, text = judge(extension, source, work)
            seconds = time.monotonic() - begin
            line = f"{extension.name:<34} {'yes' if builds else 'no':<7} {outcome:<15}"
            print(f"{line} {seconds:7.0f}  {text}", flush=True)
            report = (work / "log.txt").read_text(errors="replace")
            if outcome != extension.expected or extension.says not in report:
                wrong += 1
                print(f"  expected: {extension.expected} {extension.reason} {extension.says}")
                print("  " + "\n  ".join(line[:200] for line in report.splitlines()[-15:]))
            elif extension.reason:
                print(f"  {extension.reason}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
