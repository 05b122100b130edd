"""Makes the archive of a report: what a person attaches to an issue."""

import io
import re
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

# Where macOS keeps crash reports.
_CRASH_REPORTS = Path("Library/Logs/DiagnosticReports")
# What identifies the machine in a crash report.
_IDENTIFYING = re.compile(r'("(?:crashReporterKey|bootSessionUUID)"\s*:\s*)"[^"]*"')
# A log that is longer than this many bytes loses its middle.
_LONGEST = 20 << 20


def _files(root: Path, home: Path, folder: Path, since: float) -> Iterator[tuple[str, Path]]:
    """Yields (name in the archive, path) of all files but the record."""
    for path in sorted((folder / "logs").glob("*")):
        yield f"logs/{path.name}", path
    others = {
        "tests": (root / "build/tests").glob("*"),
        "build": [
            *(root / "build").glob("*/build.log"),
            *(root / "build").glob("*/configure.log"),
            *(root / "build").glob("*/.ninja_log"),
            root / ".venv/k2mps-pip.log",
        ],
        "crash-reports": [
            *(home / _CRASH_REPORTS).glob("*.ips"),
            *(home / _CRASH_REPORTS / "Retired").glob("*.ips"),
            *(Path("/") / _CRASH_REPORTS).glob("*.ips"),
        ],
    }
    for name, paths in others.items():
        for path in sorted(paths):
            # A record can be of a build that is older than the record.
            if path.is_file() and (name == "build" or path.stat().st_mtime >= since):
                parent = f"{path.parent.name}-" if name == "build" else ""
                yield f"{name}/{parent}{path.name}", path


def write(
    output: Path,
    root: Path,
    folder: Path,
    since: float,
    pages: dict[str, str],
    clean: Callable[[str], str],
    home: Path | None = None,
) -> None:
    """Writes the archive.

    Args:
      output: the .tar.gz to write.
      root: the folder of the project.
      folder: the folder of the record and its logs.
      since: when the first run of this record began.  Older results of tests and older crash
        reports are left out.
      pages: {name: text} of further files.
      clean: replaces names, see names.py.
      home: the folder of the user, which has the crash reports.
    """
    contents = dict(pages)
    contents["record.jsonl"] = (folder / "record.jsonl").read_text(errors="replace")
    for name, path in _files(root, home or Path.home(), folder, since):
        try:
            data = path.read_bytes()
        except OSError as error:  # macOS can forbid a program to read crash reports
            contents[clean(name) + ".error"] = clean(str(error))
            continue
        if len(data) > _LONGEST:
            data = data[: _LONGEST // 2] + b"\n[...]\n" + data[-_LONGEST // 2 :]
        text = _IDENTIFYING.sub(r'\1"<machine>"', data.decode(errors="replace"))
        contents[clean(name)] = clean(text)
    partial = output.with_suffix(".part")
    with tarfile.open(partial, "w:gz") as archive:
        for name, text in contents.items():
            data = text.encode()
            member = tarfile.TarInfo(f"mac-report/{name}")
            member.size, member.mtime = len(data), int(since)
            archive.addfile(member, io.BytesIO(data))
    partial.replace(output)
