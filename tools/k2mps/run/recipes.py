"""A checkout of icefall, rewritten for mps.  git takes the changes back."""

from collections.abc import Mapping
from pathlib import Path

from libcst import ParserSyntaxError

from k2mps.core import errors, interrupts
from k2mps.core.git import Git, quoted, split_z
from k2mps.core.progress import Reporter
from k2mps.run import rewriting


def rewrite(
    directory: Path, reporter: Reporter = Reporter()
) -> tuple[list[str], Mapping[str, str]]:
    """Rewrites the recipes of a checkout; nothing is written before all are read.

    Returns:
      The files that were rewritten; and by file, what still needs CUDA, or why a file stays.
    Raises:
      K2mpsError: the directory is not the root of a checkout of icefall, or has edits.
    """
    git = Git(directory.resolve(), reporter=reporter)
    if not (directory / ".git").exists() or not (directory / "icefall/utils.py").exists():
        raise errors.K2mpsError(
            f"{directory} is not the root of a checkout of icefall",
            why="it has no .git, or no icefall/utils.py",
            next_command="git clone https://github.com/k2-fsa/icefall, and name that",
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
    # git finds nothing behind links, which lead to others of these files.
    found = git.run("grep", "-lzE", "-e", rewriting.HINT)
    if found.status > 1:
        raise git.failure(("grep",), found)
    paths = [path for path in split_z(found.stdout) if path.endswith(".py")]
    with reporter.task("rewriting") as update:
        for number, path in enumerate(paths):
            update(number, len(paths), path)
            content = (directory / path).read_bytes()
            try:
                text, needs = rewriting.rewrite(content.decode("utf-8"))
            except (ValueError, ParserSyntaxError) as error:
                text, needs = "", f"stays as it is: {str(error).splitlines()[0]}"
            if needs:
                left[path] = needs
            if text and text.encode("utf-8") != content:
                changed[path] = text.encode("utf-8")
    with interrupts.deferred():
        for path, content in changed.items():
            (directory / path).write_bytes(content)
    return list(changed), left
