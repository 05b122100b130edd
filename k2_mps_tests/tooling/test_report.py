"""`k2mps report`: figures that the tests can count by hand."""

import json
import shutil

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.support import git, snapshot


def report(sandbox, *args) -> dict:
    return json.loads(sandbox.ok("report", "--json", *args))


def test_the_lines_of_each_patch(sandbox):
    found = report(sandbox)
    keys = "name new_files new_lines files added removed".split()
    assert [tuple(map(one.get, keys)) for one in found["patches"]] == [
        ("context-know-mps.patch", 2, 2, 2, 2, 2),
        ("array-a-mode-and-line-ends.patch", 0, 0, 4, 2, 3),
        ("python-add-only-new-files.patch", 4, 3, 0, 0, 0),
    ]
    assert [found[key] for key in ("new_lines", "upstream_lines", "budget")] == [5, 9, None]
    assert {one["status"] for one in found["patches"]} == {"Pending (not sent yet)"}
    lines = sandbox.ok("report").splitlines()
    assert lines.index("Patches") < lines.index("Drift")
    rows = [line.split("\t") for line in lines if "\t" in line]
    assert len(rows) == 3
    assert ["", "context-know-mps.patch", "2", "+2 -2", "2", "Pending (not sent yet)"] in rows


def test_the_budget(sandbox):
    with open(sandbox.root / "upstream.toml", "a") as config:
        config.write("\n[budget]\nlines = 12\n")
    assert report(sandbox)["budget"] == 12
    assert "9 lines in upstream's files, against a budget of 12 (3 left)" in (sandbox.ok("report"))


def test_without_a_checkout_the_drift_is_said_to_be_unknown(sandbox):
    drift = report(sandbox)["drift"]
    assert drift["behind"] is None
    assert "k2mps checkout" in drift["unknown"]


def test_how_far_upstream_has_moved(sandbox):
    sandbox.ok("apply")
    assert report(sandbox)["drift"]["behind"] == 0
    for number in range(3):
        support.commit(sandbox.upstream, f"Newer {number}", {"k2/csrc/array.cu": f"{number}\n"})
    before = snapshot(sandbox.checkout)
    drift = report(sandbox)["drift"]
    after = snapshot(sandbox.checkout)
    assert drift["behind"] == 3
    assert drift["tip"] == git(sandbox.upstream, "rev-parse", "HEAD")
    assert drift["date"] == "2023-11-14"
    assert drift["age_days"] > 700
    assert drift["unknown"] == ""
    assert before == after


@pytest.mark.parametrize("offline", [True, False])
def test_an_upstream_that_was_not_reached_is_said_so(sandbox, offline):
    sandbox.ok("apply")
    support.commit(sandbox.upstream, "Newer", {"a": "1\n"})
    sandbox.ok("report")
    shutil.rmtree(sandbox.upstream)
    args = ["--offline"] if offline else []
    drift = report(sandbox, *args)["drift"]
    assert drift["behind"] == 1
    reason = "was not asked" if offline else "cannot be reached"
    assert reason in drift["unknown"]
    out = sandbox.ok("report", *args)
    assert "as it was when last asked" in out and reason in out
