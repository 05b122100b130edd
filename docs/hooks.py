"""What mkdocs calls: puts the timeline of emulated signposts into its page.

The picture is drawn anew for each site, by k2_mps_tests.timeline.  Without it,
as where k2 has not been built or on a Mac, which has no emulator, the page has
no picture.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from mkdocs.structure.files import File

MARK = "<!-- timeline -->"
NAME = "images/timeline.svg"
_CAPTION = "Signposts of k2 and its dispatches, emulated"


def on_files(files, config):
    """Adds the picture to the files of the site."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "timeline.svg")
        outcome = subprocess.run(
            [sys.executable, "-m", "k2_mps_tests.timeline", str(path)], capture_output=True
        )
        if outcome.returncode == 0:
            files.append(File.generated(config, NAME, content=path.read_text()))
    return files


def on_page_markdown(markdown, page, config, files):
    """Shows it where the mark is."""
    if files.get_file_from_path(NAME) is None:
        return markdown.replace(MARK, "")
    return markdown.replace(MARK, f"![{_CAPTION}]({NAME})")
