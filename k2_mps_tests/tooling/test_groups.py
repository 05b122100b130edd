"""The groups of patches/series: one for each pull request to k2, and the last for the rest."""

import re
import shutil

import pytest
from k2mps.core import errors
from k2mps.series import patch_folder, series_file

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.sandbox import CONTEXT, MPS, NEW
from k2_mps_tests.tooling.series_files import findings, write_cover_letters
from k2_mps_tests.tooling.support import git

REAL = (support.TOOLS.parent / "patches/series").read_bytes()
ORDER = b"""\
# why
# shared-memory: one
a.patch
b.patch

# device: two
c.patch

# profiling: three
d.patch
"""
GROUPS = {
    "a.patch": "shared-memory",
    "b.patch": "shared-memory",
    "c.patch": "device",
    "d.patch": "profiling",
}


def test_a_comment_with_a_colon_begins_a_group():
    assert series_file.parse(ORDER) == (list(GROUPS), GROUPS)
    assert series_file.parse(b"# device of ours\na.patch\n") == (["a.patch"], {})


@pytest.mark.parametrize(
    "before", [b"# device: x\na.patch\n", b"# shared-memory: x\na.patch\n", b"a.patch\n"]
)
def test_groups_out_of_order_are_refused(before):
    with pytest.raises(errors.SeriesError):
        series_file.parse(before + b"# shared-memory: y\nb.patch\n")


@pytest.mark.parametrize(
    "names, groups",
    [
        ("abcd", "ssdp"),
        ("axbcd", "sssdp"),  # A new patch joins the group of the patch before it.
        ("abcxd", "ssddp"),
        ("abcdx", "ssdpp"),
        ("xabcd", "sssdp"),
        ("bacd", "ssdp"),
        ("acbd", "sssp"),  # c joins the group of the patches around it.
        ("abdc", "ssdd"),
        ("dabc", "sssd"),
        ("bd", "sp"),
    ],
)
def test_patches_keep_their_groups_in_another_order(names, groups):
    found = series_file.regroup(GROUPS, [f"{name}.patch" for name in names])
    assert "".join(group[0] for group in found.values()) == groups


def test_a_new_order_keeps_the_comments_of_groups():
    order = series_file.render_order(ORDER, ["b.patch", "x.patch", "a.patch", "d.patch"])
    assert order == (
        b"# why\n# shared-memory: one\nb.patch\nx.patch\na.patch\n\n# device: two\n\n"
        b"# profiling: three\nd.patch\n"
    )
    assert series_file.render_order(ORDER, list(GROUPS)) == ORDER


@pytest.mark.parametrize("order", [ORDER, REAL])
@pytest.mark.parametrize("comment", ["# mine", "  # mine: two\n# lines", "\n# mine", "# mine\n"])
def test_a_comment_stays_in_its_group_wherever_it_stands(order, comment):
    """The new order lacks the patches of every second group."""
    lines = order.decode().splitlines()
    for at in range(len(lines) + 1):
        old = "\n".join([*lines[:at], comment, *lines[at:], ""]).encode()
        names, groups = series_file.parse(old)
        emptied = list(dict.fromkeys(groups.values()))[::2]
        kept = [name for name in names if groups[name] not in emptied]
        new = series_file.render_order(old, [*kept, "new.patch"])
        assert comments(new) == comments(old)
        assert series_file.parse(new)[0] == [*kept, "new.patch"]


def comments(order: bytes) -> list[bytes]:
    return [line for line in order.split(b"\n") if line.strip().startswith(b"#")]


@pytest.mark.parametrize(
    "name, owner, may",
    [
        ("d.patch", "a.patch", True),
        ("a.patch", "d.patch", False),
        ("b.patch", "a.patch", False),
        ("b-at-head.patch", "a.patch", True),
        ("other.patch", "a.patch", False),
        ("d.patch", "other.patch", False),
    ],
)
def test_which_patch_may_edit_a_new_file_of_another(name, owner, may):
    groups = {**GROUPS, "b-at-head.patch": "shared-memory"}
    assert series_file.may_edit(groups, name, owner) == may
    assert not series_file.may_edit({}, name, owner)


def test_the_first_patch_of_an_empty_order_is_its_first_line():
    assert series_file.render_order(b"", ["a.patch"]) == b"a.patch\n"


def test_a_group_that_lost_its_patch_keeps_its_title():
    moved = ORDER.replace(b"c.patch\n", b"").replace(b"b.patch\n", b"b.patch\nc.patch\n")
    new = series_file.render_order(moved, ["a.patch", "b.patch", "c.patch", "d.patch", "x.patch"])
    assert new == moved + b"x.patch\n"


def test_patches_that_are_all_new_join_the_last_group():
    new = series_file.render_order(ORDER, ["x.patch"])
    assert series_file.parse(new) == (["x.patch"], {"x.patch": "profiling"})


@pytest.fixture
def grouped(sandbox, user_name):
    """The sample series in three groups; a patch of the last group edits a file of the first."""
    order = sandbox.root / "patches/series"
    names = order.read_text().split()
    sandbox.ok("apply")
    order.write_text(
        f"# shared-memory: a\n{names[0]}\n# device: b\n{names[1]}\n# profiling: c\n{names[2]}\n"
    )
    path = "k2/csrc/mps/context.mm"
    text = (sandbox.checkout / path).read_text()
    support.commit(sandbox.checkout, "context: say more", {path: text + "// more\n"})
    sandbox.ok("export")
    write_cover_letters(sandbox, "shared-memory", "device", "profiling")
    return sandbox


def test_the_last_group_may_have_one_patch(sandbox):
    order = sandbox.root / "patches/series"
    first, second, last = order.read_text().split()
    order.write_text(f"# shared-memory: a\n{first}\n{second}\n# profiling: b\n{last}\n")
    groups = patch_folder.load(sandbox.root / "patches").groups
    assert series_file.last_group(groups) == "profiling"


def test_a_later_group_may_edit_what_an_earlier_one_adds(grouped):
    """patches/files has the file that the first group adds; the later patch has the edit."""
    path = "k2/csrc/mps/context.mm"
    added = (grouped.root / "patches/files" / path).read_text()
    assert "// more" not in added
    patch = (grouped.root / "patches/context-say-more.patch").read_text()
    assert "+// more" in patch
    tree = git(grouped.checkout, "rev-parse", "HEAD^{tree}")
    git(grouped.checkout, "checkout", "--quiet", "--detach", grouped.pin)
    git(grouped.checkout, "branch", "--quiet", "-D", "k2-mps")
    grouped.ok("apply")
    assert git(grouped.checkout, "rev-parse", "HEAD^{tree}") == tree
    assert (grouped.checkout / path).read_text() == added + "// more\n"


@pytest.fixture
def edited(grouped):
    """The series after a line was added to a new file by hand.

    The patch that edits this file names the file's old blob, which only this checkout has.
    """
    support.edit(grouped.root / "patches/files/k2/csrc/mps/context.mm", "//", "// a line\n//")
    return grouped


def test_lint_and_apply_ask_for_an_export_after_a_hand_edit(edited):
    patch = "patches/context-say-more.patch"
    text = (edited.root / patch).read_text()
    line = text[: text.index("diff --git")].count("\n") + 1
    assert (patch, line, "index") in findings(edited)
    result = edited.run("apply")
    assert result.returncode == 0
    assert f", in {patch};" in result.stderr and result.stderr.endswith("next: k2mps export\n")
    shutil.rmtree(edited.checkout)
    assert "without k2mps export" in edited.fails(14, "apply")


def test_an_apply_that_refuses_does_not_ask_for_an_export(edited):
    """The export would refuse, too."""
    support.commit(edited.checkout, "mine", {"mine": "x\n"})
    assert "warning" not in edited.fails(1, "apply")


def test_after_an_export_a_new_clone_has_the_hand_edit(edited):
    edited.ok("apply")
    edited.ok("export")
    assert "index" not in [check for _, _, check in findings(edited)]
    shutil.rmtree(edited.checkout)
    assert "warning" not in edited.run("apply").stderr
    text = (edited.checkout / "k2/csrc/mps/context.mm").read_text()
    assert text == "// a line\n// Metal, größer\n// more\n"


@pytest.mark.parametrize(
    "old, new",
    [
        (r"index .{40}", f"index {'0' * 40}"),  # the blob before the edit
        (r"\.\..{40}", f"..{'0' * 40}"),  # the blob after the edit
        (r"\+// more", "+// less"),
    ],
)
def test_lint_compares_both_blobs_of_an_index_line(grouped, old, new):
    file = grouped.root / "patches/context-say-more.patch"
    text, count = re.subn(old, new, file.read_text(), count=1)
    assert count == 1
    file.write_text(text)
    assert "index" in [check for _, _, check in findings(grouped)]


def test_a_later_group_may_delete_what_an_earlier_one_adds(grouped):
    git(grouped.checkout, "rm", "--quiet", "k2/csrc/mps/context.mm")
    git(grouped.checkout, "commit", "--quiet", "-m", "context: nothing to say")
    grouped.ok("export")
    assert "index" not in [check for _, _, check in findings(grouped)]


def test_a_group_is_a_branch_on_top_of_those_before_it(grouped):
    k2 = grouped.checkout
    out = grouped.ok("upstream", "--group", "device", "--branch", "two")
    assert "\n* array: a mode and line ends\n" in out and "context: know" not in out
    assert git(k2, "log", "--format=%s", f"{grouped.pin}..two").splitlines() == [
        "array: a mode and line ends",
        "context: know mps",
    ]
    grouped.ok("upstream", "--group", "profiling", "--branch", "three")
    assert git(k2, "rev-parse", "three~2") == git(k2, "rev-parse", "two")
    assert git(k2, "rev-parse", "three^{tree}") == git(k2, "rev-parse", "k2-mps^{tree}")
    assert "has no group scores" in grouped.fails(1, "upstream", "--group", "scores")


@pytest.fixture
def fixes(sandbox, user_name):
    """The sample series; the second patch is a group of fixes, with a patch for the series only."""
    order = sandbox.root / "patches/series"
    names = order.read_text().split()
    sandbox.ok("apply")
    order.write_text(f"# device: a\n{names[0]}\n# fixes-core: b\n{names[1]}\n{names[2]}\n")
    support.commit(sandbox.checkout, "more at head", {"k2/csrc/mps/context.mm": "// more\n"})
    sandbox.ok("export")
    assert "more-at-head.patch" in order.read_text()
    write_cover_letters(sandbox, "device", "fixes-core")
    return sandbox


def subjects(sandbox, branch):
    return git(sandbox.checkout, "log", "--format=%s", f"{sandbox.pin}..{branch}").splitlines()


def test_a_group_of_fixes_is_a_branch_on_the_pin(fixes):
    fixes.ok("upstream", "--group", "fixes-core", "--branch", "alone")
    all_subjects = subjects(fixes, "k2-mps")
    assert all_subjects[0] == "more at head" and all_subjects[-1] == "context: know mps"
    assert subjects(fixes, "alone") == all_subjects[1:-1]
    assert "k2/csrc/mps" not in git(fixes.checkout, "ls-tree", "-r", "--name-only", "alone")


def test_a_group_of_fixes_in_the_series_has_all_its_patches(fixes):
    fixes.ok("upstream", "--group", "fixes-core", "--in-series", "--branch", "series")
    assert subjects(fixes, "series") == subjects(fixes, "k2-mps")


def test_a_fix_that_needs_another_group_is_refused(fixes):
    support.edit(fixes.checkout / "k2/csrc/mps/context.mm", "// more", "// all")
    fixes.ok("new", "needs mps")
    message = fixes.fails(1, "upstream", "--group", "fixes-core", "--branch", "alone")
    assert "patches/needs-mps.patch does not apply to k2 alone" in message


def test_only_a_patch_at_head_may_edit_what_its_own_group_adds():
    groups = {"a.patch": "fixes-core", "b.patch": "fixes-core", "b-at-head.patch": "fixes-core"}
    assert not series_file.may_edit(groups, "b.patch", "a.patch")
    assert series_file.may_edit(groups, "b-at-head.patch", "a.patch")


def test_lint_finds_a_status_that_does_not_fit_the_group(grouped):
    """Patches of the last group are not for k2, and patches of all other groups are."""
    support.edit(grouped.root / f"patches/{MPS}", "Pending (", "Inappropriate (")
    found = re.findall("(.*?):.*does not fit", grouped.run("lint").stdout)
    assert found == [f"patches/{name}" for name in (MPS, NEW)]


def test_a_new_patch_has_a_status_that_fits_its_group(grouped):
    support.edit(grouped.checkout / CONTEXT, "line 20\n", "twenty\n")
    assert "the patch is in the group profiling; if it is for k2" in grouped.ok("new", "more")
    support.commit(grouped.checkout, "by git", {"k2/by_git.py": "1\n"})
    grouped.ok("export")
    for name in ("more", "by-git"):
        head = (grouped.root / f"patches/{name}.patch").read_text()
        assert "\nUpstream-Status: Inappropriate (k2 need not carry it)\n" in head
    out = grouped.run("lint").stdout
    assert "more.patch" not in out and "by-git.patch" not in out


def test_a_new_patch_is_moved_to_its_group_by_hand(grouped):
    """Follows the advice that `k2mps new` prints."""
    path = grouped.root / "patches/series"
    support.edit(grouped.checkout / CONTEXT, "line 20\n", "twenty\n")
    grouped.ok("new", "more")
    order = path.read_text().replace("\nmore.patch\n", "\n")
    path.write_text(order.replace("# profiling", "more.patch\n# profiling"))
    assert "a new patch there is Pending (not sent yet)" in grouped.run("lint").stdout
    patch = grouped.root / "patches/more.patch"
    support.edit(patch, "Inappropriate (k2 need not carry it)", "Pending (not sent yet)")
    grouped.ok("apply")
    grouped.ok("export")
    assert "more.patch" not in grouped.run("lint").stdout
    assert "* more\n" in grouped.ok("upstream", "--group", "device")


@pytest.mark.parametrize("command", [["export"], ["new", "mine"], ["fold", MPS]])
def test_a_malformed_line_of_the_order_is_named(grouped, command):
    """The last patch may edit the first patch's file only because of the groups."""
    (grouped.root / "patches/series").open("a").write("no patch\n")
    support.edit(grouped.checkout / CONTEXT, "line 20\n", "mine\n")
    if command == ["export"]:
        git(grouped.checkout, "commit", "--quiet", "--all", "-m", "mine")
    found = grouped.run("lint").stdout
    _, message = re.search(r"(patches/series:\d+: )(.*) \[form\]", found).groups()
    assert message in grouped.fails(1, *command)
