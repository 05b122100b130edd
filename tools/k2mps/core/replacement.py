"""Replacing files of the project, all or none, together with a branch of k2.

The new files are written beside the old ones first, where a full disk harms nothing.  One rename
makes them a plan, whose note says where the checkout goes.  After a kill before the checkout is
there, the plan is forgotten; after it, the next run completes the plan, which is renames only.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

from k2mps.core.objects import File


class Replacement:
    """The plan that replaces files of a folder, if there is one.

    Args:
      area: where new files are written, on the file system of `root`.
      root: the folder that paths are relative to.
    """

    def __init__(self, area: Path, root: Path):
        self._draft, self._area, self._root = area.with_name(f"{area.name}-draft"), area, root

    @property
    def note(self) -> dict | None:
        """What the plan's maker noted; None where there is no plan."""
        with contextlib.suppress(FileNotFoundError):
            return json.loads((self._area / "note").read_text(encoding="utf-8"))
        return None

    def prepare(self, changed: Mapping[str, File], removed: Collection[str], note: dict) -> None:
        """Writes the new files and makes them the plan."""
        self.discard()
        files = {f"new/{path}": file for path, file in changed.items()}
        files["note"] = File(json.dumps({**note, "removed": [*removed]}).encode())
        try:
            for path, file in files.items():
                target = self._draft / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.content)
                if file.executable:
                    target.chmod(target.stat().st_mode | 0o111)
            self._draft.rename(self._area)
        except BaseException:
            self.discard()
            raise

    def complete(self) -> None:
        """Carries the plan out; done twice, it does the same.  The plan stays until `discard`."""
        for path in self.note["removed"]:
            (self._root / path).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                for parent in list(Path(path).parents)[:-2]:
                    (self._root / parent).rmdir()
        new = self._area / "new"
        for file in sorted(path for path in new.rglob("*") if path.is_file()):
            target = self._root / file.relative_to(new)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(file, target)

    def discard(self) -> None:
        """Forgets the plan and what a killed run has written."""
        (self._area / "note").unlink(missing_ok=True)
        for folder in (self._area, self._draft):
            shutil.rmtree(folder, ignore_errors=True)


def rewrite(path: Path, text: str) -> None:
    """Writes a file; a kill leaves the old text or the new one."""
    draft = path.with_name(f"{path.name}.draft")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)
