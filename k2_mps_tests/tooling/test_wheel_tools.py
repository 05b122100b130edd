"""pip, uv and k2utils find wheels on the page that `k2mps wheel index` writes.

The tests run the real programs, on small wheels that the tests make.
"""

import dataclasses
import html
import json
import os
import re
import shlex
import subprocess
import sys
import types
from pathlib import Path
from urllib.parse import quote

import pytest
from k2mps.build import toolchain
from k2mps.build.doctor import Device
from k2mps.core import errors
from k2mps.wheel import contents
from k2mps.wheel.index import write as write_index
from k2utils.commands.install import common
from k2utils.commands.install.k2 import K2
from packaging import tags

from k2_mps_tests.tooling import support, wheel_for_tests
from k2_mps_tests.tooling.wheel_of_k2 import case

ROOT = support.TOOLS.parent


@pytest.fixture(autouse=True)
def _users_pip(monkeypatch):
    """Makes pip ignore the indexes and pages that the user's configuration names."""
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)


# ---- the index page


def pip(page: str, wanted: str, folder: Path, *how: str) -> subprocess.CompletedProcess:
    """Downloads a wheel with pip, from a page into a folder."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-index"]
    where = ["--disable-pip-version-check", "--dest", folder, "--find-links", page]
    return support.ran(*command, *where, *how, wanted)


def test_pip_finds_each_version_on_a_page_beside_the_wheels_or_elsewhere(tmp_path):
    wheels = tmp_path / "wheels"
    made = [case(torch).written(wheels) for torch in ("2.12.0", "2.13.0")]
    elsewhere = write_index(wheels, wheels.as_uri()).rename(tmp_path / "mps.html")
    beside = write_index(wheels)
    for page, path in ((beside, made[0]), (beside, made[1]), (elsewhere, made[1])):
        result = pip(page.as_uri(), f"k2=={path.name.split('-')[1]}", tmp_path / "got")
        assert result.returncode == 0, result.stdout + result.stderr
        got = tmp_path / "got" / path.name
        assert got.read_bytes() == path.read_bytes()
        got.unlink()


@pytest.mark.parametrize(
    "url, start", [("", ""), ("https://k2.org/w", "https://k2.org/w/"), ("w//", "w/")]
)
def test_a_page_names_the_wheels_below_its_url(tmp_path, url, start):
    path = case().written(tmp_path)
    link = f'<a href="{start}{quote(path.name)}#sha256='
    assert link in write_index(tmp_path, url).read_text()


def test_wheel_index_writes_mps_html(empty, tmp_path):
    code = errors.CheckFailedError.exit_code
    assert "no wheel" in empty.fails(code, "wheel", "index", str(tmp_path))
    assert not (tmp_path / "mps.html").exists()
    case().written(tmp_path)
    assert empty.ok("wheel", "index", str(tmp_path)).strip() == str(tmp_path / "mps.html")


def test_the_newest_version_is_the_first_of_the_page(tmp_path):
    versions = [
        f"{k2}.post20250714+mps.cpu.torch{torch}"
        for k2 in ("1.24.4", "1.24.10")
        for torch in ("2.9.0", "2.13.0")
    ]
    for version in versions:
        case(version=version).written(tmp_path)
    shown = re.findall("k2==([^']+)", html.unescape(write_index(tmp_path).read_text()))
    assert shown == [*reversed(versions)]


# ---- how people install


def page_of_k2(folder: Path, *versions: str) -> Path:
    """Writes wheels for every system, and a page of links like k2's cpu.html; returns the page."""
    for version in versions:
        case(version=version).written(folder)
    links = [f'<a href="{quote(path.name)}">{path.name}</a><br/>\n' for path in folder.iterdir()]
    page = folder / "cpu.html"
    page.write_text("".join(links))
    return page


# The parts of a command that installs packages: the words before the path of a Python, the words
# after this path, and the option that installs a package again.
PIP = ([sys.executable, "-m", "pip", "--python"], ["install", "-q"], "-I")
UV = ([f"{sys.prefix}/bin/uv", "pip", "install", "--python"], ["--offline", "-n"], "--reinstall")
OURS = "1.24.4.post20250714+mps.cpu.torch2.13.0"


def commands_of_the_page() -> list[list[str]]:
    """Returns the commands in docs/wheels.md that install k2 from a wheel, as words."""
    text = (ROOT / "docs/wheels.md").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = re.findall(r"^(?:uv )?pip install .*$", text, re.MULTILINE)
    return [shlex.split(line) for line in lines if "git+" not in line]


def index_of(folder: Path, *packages: tuple[str, str]) -> str:
    """Makes an index of packages, with small wheels; returns its URL."""
    for name, version in packages:
        (folder / name).mkdir(parents=True, exist_ok=True)
        file = wheel_for_tests.make(folder / name, version, name)
        with (folder / name / "index.html").open("a") as page:
            page.write(f'<a href="{quote(file)}">{file}</a><br/>\n')
    return folder.as_uri()


# What the index of packages has: k2 without mps, for an old torch.
INDEX = [("k2", "1.23.4"), ("graphviz", "0.20"), ("torch", "1.13.1")]


def installed(folder: Path, words: list[str], page: str, index: str) -> dict[str, str]:
    """Runs a command of a page in a new environment; returns {package: version}."""
    program, options, _ = UV if words[0] == "uv" else PIP
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    words = words[words.index("install") + 1 :]
    words = [page if word.endswith("/mps.html") else word for word in words]
    line = shlex.join([*map(str, program), str(folder / "venv/bin/python"), *options])
    # A shell replaces the * of the name of a file.
    wanted = " ".join(word if "*" in word else shlex.quote(word) for word in words)
    support.ran("sh", "-c", f"{line} --index-url {index} {wanted}", cwd=folder)
    found = folder.glob("venv/lib/python*/site-packages/*.dist-info")
    return dict(path.name.removesuffix(".dist-info").split("-") for path in found)


@pytest.mark.parametrize("words", commands_of_the_page(), ids=shlex.join)
def test_what_the_page_says_installs_our_wheel_and_its_torch(tmp_path, words):
    local = re.search(r"\+([\w.]*torch[\d.]*\d)", shlex.join(words))[1]
    version = f"1.24.4.{'post' if 'mps' in local else 'dev'}20250714+{local}"
    torch = version.rpartition("torch")[2]
    case(torch, version=version).written(tmp_path / "build/wheels")
    page = write_index(tmp_path / "build/wheels").as_uri()
    index = index_of(tmp_path / "index", *INDEX, ("torch", torch))
    assert installed(tmp_path, words, page, index) == {
        "graphviz": "0.20",
        "k2": version,
        "torch": torch,
    }


@pytest.mark.parametrize("program", [["pip"], ["uv", "pip"]], ids=" ".join)
def test_the_commands_on_mps_html_install_each_version(tmp_path, program):
    for torch in ("2.13.0", "2.14.1"):
        case(torch, version=f"1.24.4.post20250714+mps.cpu.torch{torch}").written(tmp_path / "w")
    page = write_index(tmp_path / "w")
    index = index_of(tmp_path / "index", *INDEX, ("torch", "2.13.0"), ("torch", "2.14.1"))
    lines = re.findall(r"<code>pip (install .*)</code>", html.unescape(page.read_text()))
    assert len(lines) == 2
    for number, line in enumerate(lines):
        words = [*program, *shlex.split(line.replace("THIS_PAGE", "x/mps.html"))]
        (tmp_path / str(number)).mkdir()
        found = installed(tmp_path / str(number), words, page.as_uri(), index)
        assert f"k2=={found['k2']}" in line
        assert found["k2"].endswith(f"torch{found['torch']}")


@pytest.mark.parametrize("words", commands_of_the_page(), ids=shlex.join)
def test_without_a_wheel_for_this_python_nothing_is_installed(tmp_path, words):
    """pip must not take another k2 from the index of packages."""
    case("2.12.0").written(tmp_path / "build/wheels")
    page = write_index(tmp_path / "build/wheels").as_uri()
    index = index_of(tmp_path / "index", *INDEX)
    assert installed(tmp_path, words, page, index) == {}


def test_the_version_of_a_wheel_with_mps_is_that_of_the_tests_of_an_upgrade():
    pin = types.SimpleNamespace(commit="", version="1.24.4")
    git = types.SimpleNamespace(text=lambda *words: "1752475720")  # the day of the pin
    built = types.SimpleNamespace(origin={"torch": "2.13.0", "dirty": False}, python_tag="cp311")
    description = contents.describe(
        types.SimpleNamespace(pin=pin), types.SimpleNamespace(git=git), built, Device.MPS
    )
    assert description.version == OURS


@pytest.mark.parametrize("program", [PIP, UV], ids=["pip", "uv"])
@pytest.mark.parametrize(
    "others, kept",
    [
        # Two wheels of the same release of k2 as OURS: one of a later day, and one of the same day.
        (["1.24.4.dev20260710+cpu.torch2.13.0", "1.24.4.dev20250714+cpu.torch2.13.0"], True),
        (["1.24.4+cpu.torch2.13.0"], True),
        # A wheel of a later release replaces OURS, as docs/wheels.md says.
        (["1.25.0+cpu.torch2.13.0"], False),
    ],
)
def test_an_upgrade_from_the_page_of_k2_keeps_mps(tmp_path, program, others, kept):
    case(version=OURS).written(tmp_path / "mps")
    page = write_index(tmp_path / "mps")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    words, options, again = program
    command = [*words, tmp_path / "venv/bin/python", *options]
    command += ["--no-deps", "--no-index", "--find-links"]
    subprocess.run([*command, page, "k2"], check=True, cwd=tmp_path)
    cpu = page_of_k2(tmp_path / "cpu", *others)
    subprocess.run([*command, cpu, "--upgrade", "k2"], check=True, cwd=tmp_path)
    [info] = tmp_path.glob("venv/lib/python*/site-packages/k2-*.dist-info")
    assert (info.name == f"k2-{OURS}.dist-info") == kept
    # If the program reads both pages at once, the program chooses the wheel with mps.
    if kept:
        both = [*command, page, "--find-links", cpu, again, "k2"]
        subprocess.run(both, check=True, cwd=tmp_path)
        [info] = tmp_path.glob("venv/lib/python*/site-packages/k2-*.dist-info")
        assert info.name == f"k2-{OURS}.dist-info"


def release(folder: Path) -> set[str]:
    """Writes a wheel for each torch and Python of a release; returns the wheels' names."""
    words = (sys.executable, ROOT / "ci/matrix.py", "--all")
    names = set()
    lists = dict(line.split("=", 1) for line in support.output(*words).splitlines())
    for made in json.loads(lists["wheels"])["include"]:
        torch = made["torch"]
        found = case(torch, f"1.24.4.post20250714+mps.cpu.torch{torch}")
        python = "cp" + made["python"].replace(".", "")
        tag = f"{python}-{python}-{toolchain.platform(torch)}"
        found.description = dataclasses.replace(found.description, tag=tag)
        names.add(found.written(folder).name)
    return names


def test_k2utils_finds_each_wheel_of_a_release(tmp_path, monkeypatch):
    """For each wheel, the test gives k2utils the tags of a Mac with the wheel's Python."""
    names = release(tmp_path)
    links = common.fetch_wheel_links(write_index(tmp_path, "https://example.org").as_uri())
    assert len(links) == len(names) == 15
    for name in names:
        _, version, python, abi, _ = name.split("-")
        mac = tags.cpython_tags(
            (int(python[2]), int(python[3:])), [abi], list(tags.mac_platforms((15, 0), "arm64"))
        )
        monkeypatch.setattr(common, "sys_tags", lambda found=tuple(mac): found)
        torch = common.TorchInfo(common.Version(version.rsplit("torch", 1)[1]), "cpu", None)
        url = common.select_wheel(links, torch, K2).url
        assert url.startswith(f"https://example.org/{quote(name)}#sha256=")
