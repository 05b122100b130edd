"""The differences of two wheels, down to the sections of their libraries.

Two builds of the same input have none.
"""

import io
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from k2mps.wheel.archive import WheelFile

_ENTRY_FACTS = ("date_time", "external_attr", "compress_type", "create_system", "extra")


def differences(first: Path, second: Path) -> Iterator[str]:
    """The differences of two wheels, one a line."""
    if first.read_bytes() == second.read_bytes():
        return
    one, two = WheelFile(first), WheelFile(second)
    found = list(_of_archives(one, two))
    for name in sorted(one.files.keys() & two.files.keys()):
        a, b = one.files[name], two.files[name]
        if a != b:
            found.append(f"{name}: {_of_contents(a, b)}")
    # zlib can compress the same bytes in several ways.
    yield from found or ["the archives: the same files, packed otherwise"]


def _of_archives(one: WheelFile, two: WheelFile) -> Iterator[str]:
    for name in sorted(one.files.keys() ^ two.files.keys()):
        yield f"{name}: only in the {'first' if name in one.files else 'second'}"
    common = [name for name in one.files if name in two.files]
    if common != [name for name in two.files if name in one.files]:
        yield "the archives: their files are in another order"
    for name in common:
        for fact in _ENTRY_FACTS:
            a, b = getattr(one.entries[name], fact), getattr(two.entries[name], fact)
            if a != b:
                yield f"{name}: {fact} is {a} and {b}"


def _of_contents(a: bytes, b: bytes) -> str:
    sections = (_sections(a), _sections(b))
    if all(sections):
        return _of_sections(*sections)
    try:
        texts = [content.decode().splitlines(True) for content in (a, b)]
    except UnicodeDecodeError:
        return f"other bytes from {len(os.path.commonprefix([a, b]))} on"
    for number, (left, right) in enumerate(itertools.zip_longest(*texts, fillvalue=""), 1):
        if left != right:
            return f"line {number} is {left!r} and {right!r}"


def _of_sections(a: dict[str, bytes], b: dict[str, bytes]) -> str:
    found = []
    for name in sorted(a.keys() | b.keys()):
        left, right = a.get(name, b""), b.get(name, b"")
        if left != right:
            sizes = " and ".join(dict.fromkeys((str(len(left)), str(len(right)))))
            same = len(os.path.commonprefix([left, right]))
            found.append(f"{name} ({sizes} bytes, from {same} on)")
    return "sections " + ", ".join(found) if found else "outside of all sections"


def _sections(content: bytes) -> dict[str, bytes]:
    """The sections of an ELF or Mach-O file; empty for another file."""
    import lief

    lief.logging.disable()
    if not content.startswith((b"\x7fELF", b"\xcf\xfa\xed\xfe")):
        return {}
    binary = lief.parse(io.BytesIO(content))
    sections = binary.sections if binary else ()
    return {section.name: bytes(section.content) for section in sections}
