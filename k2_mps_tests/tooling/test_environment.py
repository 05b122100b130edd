"""The tool fills and checks the virtual environment of a project."""

import dataclasses
import os
import shutil
import sys

import pytest
from k2mps.build import environment
from k2mps.core import errors, pins, process
from k2mps.core.progress import Reporter
from k2mps.core.project import Project
from packaging.requirements import Requirement

from k2_mps_tests.tooling import support, wheel_for_tests


def test_a_build_for_a_mac_can_have_another_torch():
    torch = pins.Torch("2.13.0", ("2.13.0", "2.14.1"), "2.14.1")
    here = torch.mac if sys.platform == "darwin" else torch.default
    chosen = [
        environment.torch_requirement(torch, *given)
        for given in [(None,), (None, True), ("2.13.0", True)]
    ]
    assert [str(one.specifier) for one in chosen] == [f"=={here}", "==2.14.1", "==2.13.0"]
    assert pins.Torch("2.13.0", ("2.13.0",)).default_for(mac=True) == "2.13.0"


def test_a_folder_that_is_no_environment_is_named(tmp_path):
    (tmp_path / ".venv").mkdir()
    with pytest.raises(errors.RequirementMissingError, match=r"\.venv is not a virtual environ"):
        environment.Environment(Project(tmp_path)).version_of("torch")


PYPROJECT = """\
[project]
name = "x"
[project.optional-dependencies]
build = [
  "Small.Package==1.2",
  "never==1; python_version < '3'",
]
"""


@pytest.fixture(scope="session")
def made_once(tmp_path_factory):
    """A project with a virtual environment; `made` copies this project for each test."""
    root = tmp_path_factory.mktemp("made") / "project"
    root.mkdir()
    (root / "pyproject.toml").write_text(PYPROJECT)
    support.output(sys.executable, "-m", "venv", root / ".venv")
    return root


@pytest.fixture
def made(made_once, tmp_path, monkeypatch):
    """A virtual environment whose pip looks for packages only in the folder `made.wheels`."""
    root = tmp_path / "project"
    shutil.copytree(made_once, root, symlinks=True)
    for name in list(os.environ):
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    found = environment.Environment(Project(root))
    found.wheels = wheels
    return found


def test_only_what_is_missing_is_installed(made):
    for version in ("1.1", "1.2", "1.3+cpu"):
        wheel_for_tests.make(made.wheels, version)
    wanted = made.requirements("build")
    assert [entry.name for entry in wanted] == ["Small.Package"]
    made.install([Requirement("small-package==1.1")])
    assert made.install(wanted)
    assert made.version_of("small_package") == "1.2"
    # Version 1.3+cpu satisfies a requirement of 1.3.
    made.install([Requirement("small-package==1.3")])
    assert made.version_of("small-package") == "1.3+cpu"
    # Without the folder, pip fails.  So this line passes only if the tool does not run pip.
    shutil.rmtree(made.wheels)
    assert not made.install([Requirement("small-package==1.3")])


def test_torch_is_installed_before_the_other_packages(made):
    """The options with which pip finds torch are not for the other packages."""
    wheel_for_tests.make(made.wheels, "2.13.0+cpu", name="torch")
    wheel_for_tests.make(made.wheels, "1.2")
    wanted = [Requirement("small-package==1.2"), Requirement("torch==2.13.0")]
    made.reporter = shown = Titles()
    assert made.install(wanted) and not made.install(wanted)
    assert shown.titles == ["installing torch", "installing small-package"]


class Titles(Reporter):
    """Records the titles of tasks."""

    def __init__(self):
        self.titles = []

    def task(self, title, log=None):
        self.titles.append(title)
        return super().task(title, log)


def test_a_missing_version_is_an_error(made):
    with pytest.raises(errors.RequirementMissingError) as caught:
        made.install([Requirement("small-package==9")])
    assert "small-package==9" in caught.value.why
    assert "k2mps-pip.log" in caught.value.next_command


def test_an_index_that_does_not_answer_has_its_own_error(made, monkeypatch):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(errors.IndexUnreachableError):
        made.install([Requirement("small-package==1.2")])


def test_a_conflict_is_reported_in_pips_words(made, monkeypatch, tmp_path):
    wheel_for_tests.make(made.wheels, "1.2")
    (tmp_path / "constraints").write_text("small-package<1\n")
    monkeypatch.setenv("PIP_CONSTRAINT", str(tmp_path / "constraints"))
    with pytest.raises(errors.RequirementMissingError) as caught:
        made.install([Requirement("small-package==1.2")])
    assert "The user requested small-package==1.2" in caught.value.why
    assert "The user requested (constraint) small-package<1" in caught.value.why


def test_a_wheel_for_this_machine_or_another_is_downloaded(made, tmp_path):
    # Only the package itself is downloaded.
    wheel_for_tests.make(made.wheels, "1.2", needs="package-that-is-missing")
    wheel_for_tests.make(made.wheels, "1.3", tag="cp399-cp399-macosx_14_0_arm64")
    wanted = Requirement("small-package")
    here = made.download(wanted, tmp_path / "here")
    assert here.name == "small_package-1.2-py3-none-any.whl"
    there = made.download(wanted, tmp_path / "there", "macosx_14_0_arm64", "3.99")
    assert there.name == "small_package-1.3-cp399-cp399-macosx_14_0_arm64.whl"
    wheel_for_tests.make(made.wheels, "2.0rc1")
    assert made.download(wanted, tmp_path / "newest").name == here.name
    newest = made.download(wanted, tmp_path / "early", more=["--pre"])
    assert newest.name == "small_package-2.0rc1-py3-none-any.whl"


@pytest.mark.parametrize(
    "lines, shown",
    [
        ([*"abcdefghij"], [*"cdefghij"]),
        (["Collecting x", "ERROR: no x", "", "more"], ["ERROR: no x", "more"]),
        (["building", "x.cc:1: error: y", "z"], ["x.cc:1: error: y", "z"]),
        (["an error: in words"], ["an error: in words"]),
        (["a", "  error: subprocess", *"bcdefghij"], ["  error: subprocess", *"bcdefgh"]),
    ],
)
def test_what_is_shown_of_a_failure_of_pip(lines, shown):
    assert environment._complaint(lines) == shown


def test_a_source_tree_is_installed_when_it_changes(made, tmp_path):
    source = tmp_path / "tree"
    support.write(
        source,
        {
            "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\n'
            'backend-path = ["."]\n',
            "backend.py": "import sys\n"
            f"sys.path.insert(0, {str(support.TOOLS.parent)!r})\n"
            "def build_wheel(folder, config=None, metadata=None):\n"
            "    from k2_mps_tests.tooling import wheel_for_tests as w\n"
            "    return w.make(folder, open('version').read().strip())\n",
            "version": "1.0\n",
        },
    )
    install = made.install_tree
    assert install(source, {})
    assert made.version_of("small-package") == "1.0"
    assert not install(source, {})
    (source / "version").write_text("2.0\n")
    assert install(source, {})
    assert made.version_of("small-package") == "2.0"
    assert install(source, {"FLAVOUR": "sweet"})
    assert not install(source, {"FLAVOUR": "sweet"})
    # pip installs no tests, caches or build outputs.  If only such files change, the tool installs
    # nothing.
    for file in ("tests/a", "__pycache__/a", ".cache/a", "build/a", "x.egg-info/a", "b/tests/a"):
        support.write(source, {file: ""})
    assert not install(source, {"FLAVOUR": "sweet"})
    # After a failure the tree does not count as installed.
    (source / "version").unlink()
    with pytest.raises(errors.RequirementMissingError):
        install(source, {"FLAVOUR": "sweet"})
    (source / "version").write_text("2.0\n")
    assert install(source, {"FLAVOUR": "sweet"})


def test_every_dependency_is_pinned_to_one_version():
    """pyproject.toml names one exact version of each dependency except torch."""
    path = support.TOOLS.parent / "pyproject.toml"
    document = environment.tomllib.loads(path.read_text())
    found = document["project"]
    lines = [*found["dependencies"], *document["build-system"]["requires"]]
    for group in found["optional-dependencies"].values():
        lines += group
    for line in lines:
        specifiers = list(Requirement(line).specifier)
        assert [entry.operator for entry in specifiers] == ["=="], line
        assert "*" not in specifiers[0].version, line
    assert not any(Requirement(line).name == "torch" for line in lines)


def test_python_imports_the_build_that_was_registered_last(made, tmp_path):
    from k2mps.build import builder
    from k2mps.build.request import Built

    python, library = tmp_path / "größe/k2/python", tmp_path / "tree/lib"
    support.write(python, {"k2/__init__.py": "from _k2 import x\n"})
    support.write(library, {"_k2.py": "x = 'found'\n"})
    hook = made.project.root / "k2_mac"
    support.write(hook, {"k2_mac_run.pth": "import sys; sys.hooked = 'and hooked'\n"})
    version = "1.24.4+cpu.torch2.13.0"
    built = Built(tmp_path, tmp_path, (python, library), 0, version)
    builder.register(made, dataclasses.replace(built, version="1.24.3"))
    builder.register(made, built)
    target = made.site_packages / "k2mps-build.pth"
    program = "import k2, sys; print(k2.x, sys.hooked)"
    assert support.output(made.python, "-c", program, cwd="/") == "found and hooked\n"
    pip = (made.python, "-m", "pip", "--disable-pip-version-check")
    assert f"\nk2=={version}\n" in "\n" + support.output(*pip, "list", "--format=freeze")
    assert made.version_of("k2") == version
    support.output(*pip, "uninstall", "--yes", "k2")
    assert not target.exists() and made.version_of("k2") is None
    assert not (made.site_packages / "k2_mac_run.pth").exists()


def test_a_k2_that_pip_has_installed_stays_beside_a_registered_build(made, tmp_path):
    from k2mps.build import builder

    packages = made.site_packages
    support.write(packages, {"k2-1.0.dist-info/INSTALLER": "pip\n", "k2-1.1.dist-info/RECORD": ""})
    support.write(made.project.root / "k2_mac", {"k2_mac_run.pth": ""})
    built = builder.Built(tmp_path, tmp_path, (tmp_path, tmp_path), 0, "2.0")
    builder.register(made, dataclasses.replace(built, version="1.9"))
    builder.register(made, built)
    names = sorted(path.name for path in packages.glob("k2-*"))
    assert names == ["k2-1.0.dist-info", "k2-1.1.dist-info", "k2-2.0.dist-info"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has wheels of torch with CUDA")
def test_torch_is_without_cuda_unless_the_user_names_an_index(made, monkeypatch):
    assert made.torch_options() == []  # because PIP_NO_INDEX and PIP_FIND_LINKS are set
    monkeypatch.delenv("PIP_NO_INDEX")
    assert made.torch_options() == []
    monkeypatch.delenv("PIP_FIND_LINKS")
    assert made.torch_options() == ["--extra-index-url", environment.TORCH_WITHOUT_CUDA]
    with monkeypatch.context() as on_a_mac:
        on_a_mac.setattr(sys, "platform", "darwin")
        assert made.torch_options() == []
    monkeypatch.setenv("PIP_INDEX_URL", "https://example.org/simple")
    assert made.torch_options() == []


def test_the_step_in_which_ninja_only_checks_is_no_progress():
    match = process.NINJA_PROGRESS.match
    assert match("[0/2] Re-checking globbed directories...") is None
    assert match("[10/98] Building x.o").groups() == ("10", "98", "Building x.o")
