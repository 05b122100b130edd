"""k2_mac.provenance tells where a build of k2 comes from."""

import json
import re
import shutil
import sys
from pathlib import Path

import _k2
import k2
import pytest
from k2mps.core.pins import tomllib

from k2_mac import provenance
from k2_mps_tests.parity.helpers import python

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(_k2.__file__).parent


# The name of the build folder says whether k2's source tree had uncommitted edits.
EDITED = "-edited-" in BUILD.parent.name


def test_the_origin_of_any_build():
    config = tomllib.loads((ROOT / "upstream.toml").read_text())
    info = provenance.build_info()
    assert info["upstream"] == config["upstream"]["url"]
    assert info["upstream_commit"] == config["upstream"]["commit"]
    assert re.fullmatch(r"(Apple)?Clang \d+(\.\d+)*", info["compiler"])
    assert info["torch"] == _k2.version.torch_version
    assert info["built"] == "native"
    assert info["device"] == ("mps" if sys.platform == "darwin" else "mps-emulated")
    assert info["with_mps"] is True


@pytest.mark.skipif(EDITED, reason="the source tree of this k2 had edits")
def test_a_build_without_edits_names_its_tree_and_its_series():
    info = provenance.build_info()
    assert re.fullmatch("[0-9a-f]{40}", info["patched_tree"])
    # The name of the build folder contains the start of the hash.
    assert f"-{info['patched_tree'][:12]}-" in BUILD.parent.name
    assert re.fullmatch("[0-9a-f]{40}", info["series"])


@pytest.mark.skipif(not EDITED, reason="the source tree of this k2 had no edits")
def test_a_build_with_edits_names_no_tree_and_no_series():
    info = provenance.build_info()
    assert (info["patched_tree"], info["series"], info["dirty"]) == (None, None, True)


def test_the_module_prints_the_origin():
    result = python("-m", "k2_mac.provenance")
    assert result.returncode == 0, result.stderr
    for name, value in provenance.build_info().items():
        shown = "unknown" if value is None else value
        assert f"\n{name}: {shown}\n" in f"\n{result.stdout}"


@pytest.fixture
def installed(tmp_path):
    """Lays out this k2 in a folder, like an installed wheel.

    Returns a function that imports k2 from the folder and returns k2's origin.  The function's
    attribute `folder` is the folder.
    """
    for path in BUILD.glob("_k2.*"):
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "k2").symlink_to(Path(k2.__file__).parent)

    def ask():
        result = python(
            "-c",
            "import json; from k2_mac import provenance as p; print(json.dumps(p.build_info()))",
            PYTHONPATH=str(tmp_path),
        )
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    ask.folder = tmp_path
    return ask


def test_build_info_of_a_wheel_is_its_metadata(installed):
    info = installed.folder / "k2-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: k2\nVersion: 1.0\n")
    metadata = {
        "version": "1.0+mps.torch2.13.0.dirty",
        "patched_tree": "a" * 40,
        "series": "b" * 40,
        "dirty": True,
        "compiler": "AppleClang 17.0",
        "built": "cross-built, statically verified",
        "device": "mps",
        "upstream": {"url": "https://example.org", "commit": "c" * 40},
    }
    (info / "k2mps.json").write_text(json.dumps(metadata))
    upstream = metadata.pop("upstream")
    found = installed()
    assert {name: found[name] for name in metadata} == metadata
    assert found["upstream"] == upstream["url"]
    assert found["upstream_commit"] == upstream["commit"]


def test_missing_metadata_is_unknown(installed):
    # The only metadata is in a subfolder, and belongs to another k2.
    other = installed.folder / "elsewhere" / "k2-2.0.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Name: k2\nVersion: 2.0\n")
    shutil.copy(BUILD / "k2mps.json", other)
    found = installed()
    unknown = {name for name, value in found.items() if value is None}
    assert unknown == {
        "upstream",
        "upstream_commit",
        "patched_tree",
        "series",
        "dirty",
        "built",
        "device",
    }
    assert found["git_sha1"] == _k2.version.git_sha1
