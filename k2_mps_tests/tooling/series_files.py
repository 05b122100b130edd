"""Reads and changes the patches of a sandbox, and what the tool says about them."""

import re

from k2mps.series import patch_text

from k2_mps_tests.tooling.sandbox import Sandbox
from k2_mps_tests.tooling.support import write


def drop(sandbox: Sandbox, name: str) -> None:
    """Removes a patch and its new files from patches/, without the tool."""
    folder = sandbox.root / "patches"
    patch = patch_text.parse(name, (folder / name).read_bytes())
    for path in (name, *(f"files/{new_file}" for new_file in patch.new_files)):
        (folder / path).unlink()
    order = (folder / "series").read_text()
    (folder / "series").write_text(order.replace(f"{name}\n", ""))


def write_cover_letters(sandbox: Sandbox, *groups: str) -> None:
    """Writes docs/pull-requests.md with a section for all groups, and one for each of `groups`."""
    sections = [f"## {group}: Title\n\nText.\n\n" for group in (*groups, "every group")]
    write(sandbox.root, {"docs/pull-requests.md": "".join(sections)})


def patches(sandbox: Sandbox) -> dict[str, bytes]:
    """Returns {path: content} of upstream.toml and of all files in patches/.

    Drafts, which a killed command has left, do not count; git ignores them.
    """
    found = {
        path.relative_to(sandbox.root).as_posix(): path.read_bytes()
        for path in (sandbox.root / "patches").rglob("*")
        if path.is_file() and not path.name.startswith(".k2mps-draft-")
    }
    found["upstream.toml"] = (sandbox.root / "upstream.toml").read_bytes()
    return found


def findings(sandbox: Sandbox) -> list[tuple[str, int, str]]:
    """Returns what `k2mps lint` finds, [(file, line, name of the check)]."""
    result = sandbox.run("lint")
    found = re.findall(r"^(\S+?):(\d+): .* \[(\w+)\]$", result.stdout, re.MULTILINE)
    assert result.returncode == (34 if found else 0), result.stderr
    return [(path, int(line), check) for path, line, check in found]


def git_commands(sandbox: Sandbox, *args: str) -> list[str]:
    """Runs the tool with these arguments; returns the git commands that it runs, in order."""
    result = sandbox.run("--verbose", *args)
    assert result.returncode == 0, result.stderr
    return re.findall(r"^\+ git (.*)$", result.stderr, re.MULTILINE)
