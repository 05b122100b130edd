"""Builds k2's Python module, or its C++ tests.

A build installs packages, applies the series, and runs cmake and ninja in a build tree, see
build_tree.py.
"""

import shutil

from k2mps.build import doctor
from k2mps.build.build_tree import BuildTree, shared_objects
from k2mps.build.doctor import Device
from k2mps.build.environment import Environment, torch_requirement
from k2mps.build.request import Built, Request
from k2mps.core import errors, replacement
from k2mps.core.project import REGISTER, Project, exclusive
from k2mps.stack import apply, status
from k2mps.stack.checkout import Checkout
from k2mps.stack.status import State

# Replaces the id of k2's tree in the name of a build tree, if the checkout has edits.
_EDITED = "edited"

# The file of k2_mac that Python reads from site-packages.  It runs programs that a program under
# k2_mac.run starts.
RUN_HOOK = "k2_mac_run.pth"

_INSTALLER = "k2mps\n"


def build(environment: Environment, checkout: Checkout, request: Request) -> Built:
    """Applies the series if need be, and builds what has changed.

    Raises:
      RequirementMissingError, IndexUnreachableError: the build needs a package that is missing and
        cannot be installed.
      CompileError: cmake or a compiler failed.
      BusyError: another run of the tool changes the checkout, or uses the build tree.
    """
    tree = _EDITED if request.as_is else _patched_tree(environment, checkout)
    # This lock makes the tool refuse all commands that would change the checkout during the build.
    with checkout.reading():
        if tree not in (_EDITED, checkout.head().tree):
            raise errors.BusyError(
                f"another k2mps moved {checkout.directory} before the build could read it",
                next_command="run the same command again",
            )
        prepare(environment, request)
        build_tree = BuildTree(environment, checkout, request, tree[:12])
        build_tree.directory.mkdir(parents=True, exist_ok=True)
        # The compilers inherit the lock.  If this process is killed, the lock stays until the
        # compilers have ended.
        with exclusive(build_tree.directory, str(build_tree.directory)):
            steps, origin = build_tree.build(None if tree == _EDITED else tree)
    version = environment.upstream.pin.version
    return Built(
        checkout.directory,
        build_tree.directory,
        (checkout.directory / "k2" / "python", build_tree.directory / "lib"),
        steps,
        f"{version}+{request.label.replace('-', '.')}.torch{build_tree.torch}",
        build_tree.python_tag,
        origin,
    )


def _patched_tree(environment: Environment, checkout: Checkout) -> str:
    """Applies the series to the checkout, except if the checkout has edits or commits of the user.

    Returns:
      The id of the checkout's tree afterwards; or `_EDITED`, if the checkout has such edits or
      commits.
    """
    project, upstream, reporter = environment.project, environment.upstream, environment.reporter
    now = status.of_checkout(project, upstream, checkout)
    if now.state is State.EDITED and now.head.commit != upstream.pin.commit:
        reporter.info(f"building your edits: {now.details[-1]}")
        if now.patch_changes:
            reporter.warn(
                "patches/ has changed since it was applied, and is not part of this build: "
                + errors.some(now.patch_changes)
            )
        return _EDITED
    if now.state is State.APPLIED and not now.patch_changes:
        # `apply` is not called, because it would fail while another build reads the checkout.
        return now.head.tree
    tip, written = apply.apply(project, checkout)
    if written is not None:
        reporter.info(f"applied the series to {checkout.directory}")
    # git switches beside edits of files that the series does not touch.
    return _EDITED if checkout.changed_files().edited else checkout.tree_of(tip)


def check_system(environment: Environment, request: Request) -> None:
    """Checks that the system has the packages that a build needs; installs those that are missing.

    Raises:
      RequirementMissingError: a package is missing, and cannot be installed.
    """
    # A crossed build does not need the packages of the emulated mps device.
    device = Device.CPU if request.crossed else request.device
    checks = doctor.system_checks(device)
    if request.tests:
        checks.append(doctor.googletest())
    if request.crossed:
        checks += doctor.cross_checks()
    if request.metallib:
        checks.append(doctor.assembler())
    doctor.provide(checks, environment.reporter)


def prepare(environment: Environment, request: Request) -> None:
    """Installs, in .venv and on this machine, the packages that a build and its tests need."""
    chosen = torch_requirement(environment.upstream.torch, request.torch, request.crossed)
    check_system(environment, request)
    wanted = environment.requirements("build", "test", "wheels")
    environment.install(wanted if request.crossed else [chosen, *wanted])
    if request.emulated:
        project = environment.project
        environment.install_tree(project.root / "emulator", emulator_settings(project))


def emulator_settings(project: Project) -> dict[str, str]:
    """Returns the environment variables of the emulator's build."""
    # In its first run, CMake reads the compilers from the variables CC, CXX, OBJC and OBJCXX.
    compilers = doctor.compilers(Device.MPS).items()
    settings = {"CC" if name == "C" else name: program for name, program in compilers}
    settings["SKBUILD_BUILD_DIR"] = str(project.build_root / "emulator")
    return settings | shared_objects(project)


def register(environment: Environment, built: Built) -> None:
    """Registers a build in .venv, so that `import k2` loads it and `pip list` shows it."""
    packages = environment.site_packages
    metadata = packages / f"k2-{built.version}.dist-info"
    for other in packages.glob("k2-*.dist-info"):
        installer = other / "INSTALLER"
        if other != metadata and installer.is_file() and installer.read_text() == _INSTALLER:
            shutil.rmtree(other)
    metadata.mkdir(exist_ok=True)
    info = metadata.name
    files = {
        REGISTER: "".join(f"{path}\n" for path in built.python_path),
        RUN_HOOK: (environment.project.root / "k2_mac" / RUN_HOOK).read_text(encoding="utf-8"),
        f"{info}/METADATA": (
            "Metadata-Version: 2.1\nName: k2\n"
            f"Version: {built.version}\nSummary: built in place by k2mps build\n"
        ),
        f"{info}/INSTALLER": _INSTALLER,
    }
    # pip needs RECORD to uninstall k2.
    record = f"{info}/RECORD"
    files[record] = "".join(f"{path},,\n" for path in (*files, record))
    for name, text in files.items():
        # A rename replaces the file in one step, because another process may be reading the file.
        replacement.rewrite(packages / name, text)
