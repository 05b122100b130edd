"""Rewrites the recipes in a checkout for use on mps.  The user can undo the changes with git."""

from collections.abc import Mapping
from pathlib import Path

from k2mps.core import bounded, errors
from k2mps.core.git import Git, quoted, split_z
from k2mps.core.progress import Reporter
from k2mps.run import rewriting

# The largest program that is read.  A recipe of icefall has at most 90 kB.
_BYTES = 1 << 20
# An extended regular expression for git grep.  It matches a line that imports k2.
_USES_K2 = r"^[[:space:]]*(import|from)[[:space:]]+k2([.,[:space:]]|$)"


def rewrite(
    directory: Path, reporter: Reporter = Reporter(), in_place: bool = False
) -> tuple[list[str], Mapping[str, str]]:
    """Rewrites the recipes of a checkout such as icefall.

    The function first reads all files, and then writes.

    Args:
      in_place: see rewriting.rewrite().
    Returns:
      The files that were rewritten; and a message about each file that still needs CUDA or was not
      rewritten, by the file's path.
    Raises:
      K2mpsError: the directory is not the root of a checkout that uses k2, or has edits.
    """
    git = Git(directory.resolve(), reporter=reporter)
    known = (directory / "icefall/utils.py").exists()
    if not (directory / ".git").exists() or not (known or _matching(git, _USES_K2)):
        raise errors.K2mpsError(
            f"{directory} is not the root of a checkout that uses k2",
            why="it has no .git, or no program in it that git tracks imports k2",
            next_command="git clone https://github.com/k2-fsa/icefall; k2mps recipes ./icefall",
        )
    edited = split_z(git.bytes("diff", "--name-only", "-z", "HEAD"))
    if edited:
        raise errors.K2mpsError(
            f"{directory} has edits that are not committed, or was rewritten already",
            why=errors.some(edited),
            next_command=f"git -C {quoted(directory)} diff shows them; commit or stash them,"
            " then run the same command again",
        )
    changed, left = {}, {}
    hint = rewriting.HINT + (f"|{rewriting.IN_PLACE}" if in_place else "")
    paths = _matching(git, hint)
    with reporter.task("rewriting") as update:
        for number, path in enumerate(paths):
            update(number, len(paths), path)
            try:
                content = bounded.read(directory / path, _BYTES)
                text, needs = rewriting.rewrite(content.decode("utf-8"), in_place)
            except SyntaxError as error:
                where = f"line {error.lineno}: " if error.lineno else ""
                text, needs = "", f"stays as it is: {where}{error.msg}"
            except ValueError as error:
                text, needs = "", f"stays as it is: {str(error).splitlines()[0]}"
            if needs:
                left[path] = needs
            if text and text.encode("utf-8") != content:
                changed[path] = text.encode("utf-8")
    for path, content in changed.items():
        (directory / path).write_bytes(content)
    return list(changed), left


def _matching(git: Git, pattern: str) -> list[str]:
    """Returns the Python programs with a line that matches an extended regular expression."""
    # git grep does not follow symbolic links.  In icefall, links lead to other files of the
    # checkout, which git grep finds anyway.
    result = git.run("grep", "-lzE", "-e", pattern)
    if result.status > 1:
        raise git.failure(("grep",), result)
    return [path for path in split_z(result.stdout) if path.endswith(".py")]
