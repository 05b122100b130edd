"""Hooks of mkdocs: they add READMEs as pages of the site, and a picture of emulated signposts.

k2_mps_tests.timeline draws the picture for each build of the site.  The site has no picture
if k2 is not built, or if the site is built on a Mac, where the emulator does not run.
"""

import re
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
_CAPTION = "Signposts of k2 and its dispatches, emulated"


def on_files(files, config):
    """Adds the READMEs, the license and the picture to the files of the site."""
    for source, page in {**TEXTS, "LICENSE": "LICENSE.txt"}.items():
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


def on_page_markdown(markdown, page, config, files):
    """Changes links to files outside docs/ into links of the site; replaces MARK by the picture."""
    pages = {**TEXTS, "emulator/README.md": "emulator.md", "LICENSE": "LICENSE.txt"}
    for source, target in pages.items():
        markdown = re.sub(rf"\]\((\.\./)?{re.escape(source)}\)", f"]({target})", markdown)
    if page.file.src_uri in TEXTS.values():
        markdown = markdown.replace("](docs/", "](")
    if files.get_file_from_path(NAME) is None:
        return markdown.replace(MARK, "")
    return markdown.replace(MARK, f"![{_CAPTION}]({NAME})")
