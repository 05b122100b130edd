"""`k2mps report` counts the lines of the series, and compares them with the budget."""

import json

import pytest


@pytest.fixture
def with_budget(sandbox):
    """A clone whose patches may touch 12 lines of upstream's files."""
    with open(sandbox.root / "upstream.toml", "a") as config:
        config.write("\n[budget]\nlines = 12\n")
    return sandbox


def test_the_report_has_the_figures_as_json(with_budget):
    found = json.loads(with_budget.ok("report", "--json"))
    keys = "name new_files new_lines files added removed".split()
    assert [tuple(map(one.get, keys)) for one in found["patches"]] == [
        ("context-know-mps.patch", 2, 2, 2, 2, 2),
        ("array-a-mode-and-line-ends.patch", 0, 0, 4, 2, 3),
        ("python-add-only-new-files.patch", 4, 3, 0, 0, 0),
    ]
    assert [found[key] for key in ("new_lines", "upstream_lines", "budget")] == [5, 9, 12]
    assert {one["status"] for one in found["patches"]} == {"Pending (not sent yet)"}


def test_the_report_has_the_figures_as_a_table(with_budget):
    lines = with_budget.ok("report").splitlines()
    rows = [line.split("\t") for line in lines if "\t" in line]
    assert len(rows) == 3
    assert ["", "context-know-mps.patch", "2", "+2 -2", "2", "Pending (not sent yet)"] in rows
    assert "9 lines in upstream's files, against a budget of 12 (3 left)" in lines[1]
