"""Hooks of mkdocs: they add READMEs as pages of the site, and a picture of emulated signposts.

In the pages, OWNER stands for the owner of the repository on GitHub.  The site has the owner's
name, if a workflow or git knows it, and says how to clone the repository.

k2_mps_tests.timeline draws the picture for each build of the site.  The site has no picture
if k2 is not built, or if the site is built on a Mac, where the emulator does not run.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from mkdocs.structure.files import File

MARK = "<!-- timeline -->"
NAME = "images/timeline.svg"
# READMEs outside docs/ that are pages of the site, too.
_ROOT = Path(__file__).resolve().parents[1]
TEXTS = {"README.md": "introduction.md", "examples/README.md": "examples.md"}
# Files outside docs/ to which pages link.
FILES = {"LICENSE": "LICENSE.txt", "examples/icefall/fewer_waits.py": "fewer_waits.py"}
_CAPTION = "Signposts of k2 and its dispatches, emulated"


def on_files(files, config):
    """Adds the READMEs, other files of the repository and the picture to the files of the site."""
    for source, page in {**TEXTS, **FILES}.items():
        text = (_ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "timeline.svg")
        outcome = subprocess.run(
            [sys.executable, "-m", "k2_mps_tests.timeline", str(path)], capture_output=True
        )
        if outcome.returncode == 0:
            files.append(File.generated(config, NAME, content=path.read_text()))
    return files


def repository():
    """Returns the URL or path with which a reader can clone this repository."""
    if name := os.environ.get("GITHUB_REPOSITORY"):
        return f"{os.environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{name}"
    command = ["git", "-C", str(_ROOT), "remote", "get-url", "origin"]
    remote = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    if match := re.fullmatch(r"(?:https://|git@|ssh://git@)([\w.-]+)[:/](.+?)(?:\.git)?/?", remote):
        return f"https://{match[1]}/{match[2]}"
    return str(_ROOT)


def _with_names(markdown, is_readme):
    """Replaces OWNER, if the repository is on GitHub; adds a command that clones, to the README."""
    found = repository()
    if match := re.fullmatch(r"https://github\.com/([^/]+)/([^/]+)", found):
        markdown = markdown.replace("https://github.com/OWNER/k2-mps", found)
        markdown = markdown.replace(
            "https://OWNER.github.io/k2-mps", f"https://{match[1]}.github.io/{match[2]}"
        )
    if is_readme:
        clone = f"git clone {shlex.quote(found)} k2-mps && cd k2-mps"
        markdown = markdown.replace("```\nmake build\n", f"```\n{clone}\nmake build\n", 1)
    return markdown


def on_page_markdown(markdown, page, config, files):
    """Changes links to files outside docs/ into links of the site; replaces MARK by the picture."""
    pages = {**TEXTS, **FILES, "emulator/README.md": "emulator.md"}
    for source, target in pages.items():
        markdown = re.sub(rf"\]\((\.\./)?{re.escape(source)}\)", f"]({target})", markdown)
    markdown = _with_names(markdown, page.file.src_uri == TEXTS["README.md"])
    if page.file.src_uri in TEXTS.values():
        markdown = re.sub(r"\]\((\.\./)?docs/", "](", markdown)
    if files.get_file_from_path(NAME) is None:
        return markdown.replace(MARK, "")
    return markdown.replace(MARK, f"![{_CAPTION}]({NAME})")
