"""`k2mps lint` reports each finding with its file and line, and needs no network."""

import errno
import json
import re
import shutil

import pytest
from k2mps.core import errors, pins
from k2mps.series import lint

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.series_files import findings, git_commands
from k2_mps_tests.tooling.support import git

ROOT = support.TOOLS.parent
CONTEXT = "patches/context-know-mps.patch"
STATUS = "Status: Pending (not sent yet)"


@pytest.fixture
def sound(sandbox):
    """The sandbox with the series applied, after the two faults that lint finds are corrected."""
    sandbox.ok("apply")
    k2 = sandbox.checkout
    git(k2, "rm", "--quiet", "k2/python/k2/mps/blob.bin")
    support.write(k2, {"k2/python/k2/mps/größe.txt": "mit Zeilenende\n"})
    git(k2, "commit", "--quiet", "--all", "--amend", "--no-edit")
    sandbox.ok("export", "--prune")
    return sandbox


def line_of(sandbox, path: str, text: str) -> int:
    lines = (sandbox.root / path).read_bytes().decode().split("\n")
    return lines.index(text) + 1


def test_lint_needs_neither_a_checkout_nor_git(sound):
    shutil.rmtree(sound.checkout)
    assert git_commands(sound, "lint") == []


def test_lint_finds_a_binary_file_and_a_missing_line_end(sandbox):
    assert findings(sandbox) == [
        ("patches/files/k2/python/k2/mps/blob.bin", 1, "binary"),
        ("patches/files/k2/python/k2/mps/größe.txt", 1, "whitespace"),
    ]


def test_the_error_counts_the_findings_and_their_files(sandbox):
    assert "error: 2 findings in 2 files\n" in sandbox.fails(34, "lint")
    support.edit(sandbox.root / CONTEXT, "+line fifty\n", "+\tline fifty \n")
    assert "error: 4 findings in 3 files\n" in sandbox.fails(34, "lint")


LONG = " much" * 20
MPS = "patches/files/cmake/mps.cmake"
NEW = "patches/python-add-only-new-files.patch"


@pytest.mark.parametrize(
    "path, old, new, line, check",
    [
        (CONTEXT, "+line fifty\n", "+line fifty \n", "+line fifty ", "whitespace"),
        (CONTEXT, "+line fifty\n", "+\tline fifty\n", "+\tline fifty", "whitespace"),
        # CR is an error here, because the lines of context.h end in LF.
        (CONTEXT, "+line fifty\n", "+line fifty\r\n", "+line fifty\r", "whitespace"),
        (CONTEXT, "+line fifty\n", "+<<<<<<< a\n", "+<<<<<<< a", "conflict"),
        (CONTEXT, "it is needed.\n", "it is needed. \n", "Because it is needed. ", "form"),
        (CONTEXT, "is needed.", f"is needed{LONG}", f"Because it is needed{LONG}", "header"),
        (CONTEXT, "know mps", f"know{LONG}", f"Subject: context: know{LONG}", "header"),
        (CONTEXT, STATUS, "Status: Pending", "Upstream-Status: Pending", "header"),
        (CONTEXT, STATUS, "Status: Submitted (now)", "Upstream-Status: Submitted (now)", "header"),
        (CONTEXT, STATUS, "Status: Maybe", "Upstream-Status: Maybe", "form"),
        (CONTEXT, "@@ -49,3 +49,4", "@@ -49,3 +49,9", "@@ -49,3 +49,9 @@ line 48", "form"),
        # If lint cannot read a patch, lint does not also complain of the patch's new files.
        (NEW, STATUS, "Status: Maybe", "Upstream-Status: Maybe", "form"),
        (MPS, ")\n", ") \n", "option(K2_WITH_MPS) ", "whitespace"),
        (MPS, "option", "\toption", "\toption(K2_WITH_MPS)", "whitespace"),
        (MPS, ")\n", ")\n>>>>>>> x\n", ">>>>>>> x", "conflict"),
        (MPS, ")\n", ")\n\n", "", "whitespace"),
        ("patches/series", "python-add", "../x.patch\npython-add", "../x.patch", "form"),
        (MPS, ")\n", ")\n#ifdef __CUDA_ARCH__\n", "#ifdef __CUDA_ARCH__", "hip"),
        (MPS, ")\n", f")\n#{LONG}\n", f"#{LONG}", "width"),
    ],
)
def test_a_finding_is_at_its_line(sound, path, old, new, line, check):
    support.edit(sound.root / path, old, new)
    assert findings(sound) == [(path, line_of(sound, path, line), check)]


LINK = "https://example.org/" + "a" * 80


@pytest.mark.parametrize(
    "path, old, new",
    [
        (CONTEXT, "know mps", "know" + " much" * 11 + " end"),  # 72 letters
        (CONTEXT, "is needed.", f"is needed.\n\n  {LINK}"),
        (MPS, ")\n", ")\n#" + "x" * 79 + "\n"),
        (MPS, ")\n", f")\n# See {LINK}\n"),
        (MPS, ")\n", ")\n#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)\n"),
        (MPS, "option(K2_WITH_MPS)\n", ""),
        (CONTEXT, "+line fifty\n", "+line\tfifty\n"),
        (CONTEXT, STATUS, "Status: Inappropriate (k2 need not carry it)"),
    ],
)
def test_what_is_right_is_no_finding(sound, path, old, new):
    support.edit(sound.root / path, old, new)
    assert findings(sound) == []


def test_a_patch_that_lint_cannot_read_causes_no_finding_in_a_later_patch(sound):
    """The later patch edits the file that the second patch edits."""
    text = (sound.checkout / "k2/csrc/context.h").read_text()
    support.commit(sound.checkout, "later", {"k2/csrc/context.h": text + "more\n"})
    sound.ok("export")
    unreadable = "patches/array-a-mode-and-line-ends.patch"
    support.edit(sound.root / unreadable, STATUS, "Status: Maybe")
    assert findings(sound) == [
        (unreadable, line_of(sound, unreadable, "Upstream-Status: Maybe"), "form")
    ]


def test_a_patch_may_change_only_the_mode_of_a_file_that_others_edit(sound):
    k2, header = sound.checkout, "k2/csrc/context.h"
    support.shell(k2, f"git update-index --chmod=+x {header}; git commit -qm mode; git checkout .")
    support.edit(k2 / header, "line 20\n", "twenty\n")
    support.shell(k2, "git commit -qam edit; git rm -q CMakeLists.txt; git commit -qm delete")
    sound.ok("export")
    assert findings(sound) == []


def test_a_new_file_of_two_patches_is_one_finding(sound):
    """The tool then knows no owners, so it does not look for files without an owner."""
    support.edit(sound.root / NEW, "New-files:\n", "New-files:\n\tcmake/mps.cmake\n")
    assert findings(sound) == [("patches/series", 1, "form")]


def test_a_cc_that_only_nvcc_can_compile_is_found(sound):
    """A .cc that includes context.h, even indirectly, breaks a build with CUDA.  A .cu does not."""
    text = '#include "k2/csrc/log.h"\n#include "k2/csrc/mps/through.h"\n'
    files = {
        # Two headers that include each other.
        "k2/csrc/mps/through.h": '#include "k2/csrc/mps/back.h"\n#include "k2/csrc/context.h"\n',
        "k2/csrc/mps/back.h": '#include "k2/csrc/mps/through.h"\n',
        "k2/csrc/mps/a.cc": f'{text}#include "k2/csrc/array.h"\n',
        "k2/csrc/mps/a.cu": text,
        "k2/csrc/mps/b.cc": '#include "k2/csrc/log.h"\n#include <vector>\n#include "torch/all.h"\n',
    }
    support.commit(sound.checkout, "some", files)
    sound.ok("export")
    assert findings(sound) == [("patches/files/k2/csrc/mps/a.cc", 2, "cuda")]


def matched(text):
    """Returns the [(file, line)] that ci/problem-matcher.json finds in a text."""
    matcher = json.loads((ROOT / "ci/problem-matcher.json").read_text())
    (pattern,) = matcher["problemMatcher"][0]["pattern"]
    found = (re.search(pattern["regexp"], line) for line in text.splitlines())
    return [(one[pattern["file"]], int(one[pattern["line"]])) for one in found if one]


def test_the_problem_matcher_reads_findings(sound):
    support.edit(sound.root / CONTEXT, "+line fifty\n", "+line fifty \n")
    line = line_of(sound, CONTEXT, "+line fifty ")
    assert matched(sound.run("lint").stdout) == [(CONTEXT, line)]


def test_the_problem_matcher_reads_errors_of_apply(sound):
    support.edit(sound.root / CONTEXT, STATUS, "Status: Odd")
    assert matched(sound.fails(1, "apply")) == [(CONTEXT, 4)]


def test_the_pre_commit_hook_runs_a_command_that_exists(sound):
    text = (ROOT / ".pre-commit-hooks.yaml").read_text()
    sound.ok(*re.search(r"entry: k2mps (.*)", text)[1].split(" "))
    files = re.search(r"files: (.*)", text)[1]
    for path in (CONTEXT, "patches/series", "patches/files/a/b", "upstream.toml"):
        assert re.search(files, path)
    assert not re.search(files, "tools/upstream.toml")


@pytest.mark.parametrize(
    "old, new, problem",
    [
        (r"^\[upstream\]", "[upstream", "is not valid TOML"),
        (r"^\[upstream\]", "[other]", r"has no table \[upstream\]"),
        (r"^commit = ", "commits = ", r"\[upstream\] commit that is not a full object id"),
        (r"^supported = .*", "supported = '2'", "supported that is not a list of texts"),
        (r"^url = .*", "url = ''", r"\[upstream\] url that is not a url"),
        (r"^commit = .*", "commit = 'a741ae88'", "commit that is not a full object id"),
        (r"^default = .*", "", r"\[torch\] default that is not a text"),
        (r"^default = .*", "default = '0.1'", "supported without the default"),
        (r"^supported = \[", "supported = [2.13, ", "supported that is not a list of texts"),
        (r"^url = .*", "url = '--upload-pack=touch x;'", "does not begin with '-'"),
        (r"^url = .*", r'url = "https://k2.org/\\n"', r"\[upstream\] url that is not a url"),
        (r"^commit = .*", "commit = 5", "commit that is not a full object id"),
        (r"^supported = .*", "supported = 5", "supported that is not a list of texts"),
        (r"^mac = .*", "mac = '0.1'", "supported without the default"),
    ],
)
def test_a_wrong_upstream_toml_is_refused(tmp_path, old, new, problem):
    text, count = re.subn(old, new, (ROOT / "upstream.toml").read_text(), flags=re.M)
    assert count == 1
    file = tmp_path / "upstream.toml"
    file.write_text(text)
    with pytest.raises(errors.K2mpsError, match=problem) as refused:
        pins.load(file)
    assert refused.value.next_command


def test_files_that_the_finder_and_editors_make_are_ignored(sound):
    names = (".DS_Store", "x.patch~", "#x.patch#", ".x.patch.swp", ".x.patch.swo")
    for folder in ("patches", "patches/files/k2"):
        support.write(sound.root, {f"{folder}/{name}": "x" for name in names})
        (sound.root / folder / ".#x.patch").symlink_to("me@host.1234")
    assert findings(sound) == []
    sound.ok("apply")
    assert "already" in sound.ok("export")


@pytest.mark.parametrize(
    "error, shown",
    [
        (PermissionError(errno.EACCES, "Permission denied"), "Permission denied"),
        (OSError("odd"), "odd"),
        (errors.SeriesError("patches/a/b:7: odd: x", next_command="x"), "odd: x"),
        (errors.SeriesError("odd", why="as it is", next_command="x"), "odd: as it is"),
        (errors.SeriesError("odd", next_command="x"), "odd"),
    ],
)
def test_the_finding_of_a_file_that_cannot_be_read(error, shown):
    place = "patches/a/b:7" if "/b:7" in str(error) else "patches/series:1"
    assert str(lint._refusal("patches/series", error)) == f"{place}: {shown} [form]"


def test_symbolic_links_are_found(sound):
    """Also a link of a hidden name, or to a folder."""
    for path in ("patches/.hidden", "patches/files/folder"):
        (sound.root / path).symlink_to(sound.root)
    assert findings(sound) == [("patches/.hidden", 1, "link"), ("patches/files/folder", 1, "link")]


def test_a_link_in_the_place_of_the_folder_is_found(sound):
    """No command writes through the link, so `export` names it, too."""
    (sound.root / "patches").rename(sound.root / "elsewhere")
    (sound.root / "patches").symlink_to("elsewhere")
    assert [(file, line) for file, line, _ in findings(sound)] == [("patches/series", 1)]
    assert "through, a symbolic link" in sound.fails(1, "export")
