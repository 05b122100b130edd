"""What patches/ and branch k2-mps had in common last: the tool's one ref.

`REF` names a commit whose tree is patches/ and upstream.toml, and whose parent is the commit of k2
that they gave.  The ref matters only if patches/ and the branch disagree: it is their merge base.
If a file of patches/ is as in the ref, the branch has all of its content.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from k2mps.core import errors, objects
from k2mps.core.git import quoted
from k2mps.core.objects import Entry, File
from k2mps.core.project import Project
from k2mps.series import patch_folder
from k2mps.series.patch_text import FROM
from k2mps.stack.checkout import BRANCH_REF, Checkout

REF = "refs/k2mps/applied"
_CONFIG = "upstream.toml"


class Applied(NamedTuple):
    """What the ref says."""

    id: str  # its commit
    tip: str  # the commit of k2
    files: Mapping[str, Entry]  # patches/ and upstream.toml, by path in the project


def read(checkout: Checkout) -> Applied | None:
    """What the ref says; None where the series has not been applied here."""
    result = checkout.git.run("for-each-ref", "--format=%(objectname) %(parent)", REF)
    if result.status or "broken ref" in result.stderr:
        raise errors.K2mpsError(
            f"{REF} of {checkout.directory} is broken",
            why=result.stderr,
            next_command=f"delete {quoted(checkout.common_dir / REF)}, then k2mps apply: patches/"
            " and branch k2-mps have all that it had",
        )
    id_, _, tip = os.fsdecode(result.stdout).strip().partition(" ")
    return Applied(id_, tip, checkout.objects.entries(id_)) if tip else None


def files(project: Project) -> dict[str, File]:
    """patches/ and upstream.toml as they are."""
    found = {}
    for path in (_CONFIG, *(f"patches/{one}" for one in patch_folder.places(project.patches))):
        target = project.root / path
        if target.is_symlink():
            found[path] = File(os.fsencode(os.readlink(target)))
        elif target.is_file():
            found[path] = objects.read(target)
    return found


@contextlib.contextmanager
def unpacked(found: Mapping[str, bytes]) -> Iterator[Project]:
    """A project with these files, for reading: those of an earlier commit."""
    with tempfile.TemporaryDirectory(prefix="k2mps-") as root:
        for path, content in found.items():
            target = Path(root, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        yield Project(Path(root))


def entries(found: Mapping[str, File]) -> dict[str, Entry]:
    """Files as a tree has them."""
    return {path: file.entry for path, file in found.items()}


def series_id(project: Project, checkout: Checkout) -> str:
    """git's id of patches/ as it is."""
    found = entries(files(project))
    inside = {path.partition("/")[2]: one for path, one in found.items() if path != _CONFIG}
    return checkout.objects.tree_id(inside)


def differing(one: Mapping[str, object], other: Mapping[str, object]) -> list[str]:
    """The paths at which two collections of files differ."""
    return sorted(path for path in one.keys() | other.keys() if one.get(path) != other.get(path))


def commit(checkout: Checkout, found: Mapping[str, File], tip: str) -> str:
    """Makes the commit for the ref; no ref names it yet."""
    name = "refs/heads/applied"  # in the repository of its own
    parts = [f"commit {name}\ncommitter {FROM} 0 +0000\ndata 0\nfrom {tip}\ndeleteall\n".encode()]
    for path, file in found.items():
        head = f"M {file.mode} inline {path}\ndata {len(file.content)}\n"
        parts += [os.fsencode(head), file.content, b"\n"]
    checkout.objects.bytes("fast-import", "--quiet", "--force", stdin=b"".join(parts))
    return checkout.objects.text("rev-parse", name)


def move(checkout: Checkout, updates: Iterable[tuple[str, str, str]]) -> None:
    """Moves refs, all or none: each from an old id, which is empty where there is none yet."""
    lines = (f"update {ref} {new} {old or '0' * 40}\n" for ref, new, old in updates if new != old)
    checkout.git.bytes("update-ref", "--create-reflog", "--stdin", stdin="".join(lines).encode())


def check_movable(checkout: Checkout, tip: str) -> None:
    """Refuses where git could not move HEAD and the branch: `git switch` would find that out after
    it has written the files."""
    lines = ["start", f"update {BRANCH_REF} {tip}"]
    if checkout.head().branch != BRANCH_REF:  # With its branch, git locks HEAD as well.
        lines += ["option no-deref", f"update HEAD {tip}"]
    text = "\n".join([*lines, "prepare", "abort", ""])
    checkout.git.bytes("update-ref", "--stdin", stdin=text.encode())
