"""upstream.toml: which k2 the series is for, and the lock of the series.

    [upstream]
    url, commit, tree, version    the pin: k2's repository, the commit that
                                  the series starts from, the tree of the
                                  commit and k2's version there
    [torch]
    default, supported, tested    the torch version that a build uses unless
                                  told otherwise, all that may be chosen, and
                                  those that all suites have run with; the
                                  last may be absent, and is the default then
    [budget]
    lines                         how many lines the patches may touch in
                                  upstream's files, added and removed; may
                                  be absent
    [lock]
    series                        the sha256 of patches/series
    [lock.patches], [lock.files]  the sha256 of each patch and each new file,
                                  with " executable" after it where that is so

Only the tool writes the lock.  git merges changes of different patches without a
conflict: they change different lines of the lock, which do not adjoin.
"""

import dataclasses
import functools
import hashlib
import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from k2mps.core import errors

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_OBJECT_ID = re.compile(r"[0-9a-f]{40}")
_HEADER = re.compile(r"\s*\[+\s*([^\]\s.]+)")
_CONFLICT = re.compile(r"^(<{7}|={7}|>{7}|\|{7})( |$)", re.MULTILINE)


# The next command after an error in a line of the file.
_CORRECT = "correct it in upstream.toml; git checkout upstream.toml brings the committed file back"


@dataclasses.dataclass(frozen=True)
class Pin:
    """The upstream commit that the series starts from."""

    url: str
    commit: str
    tree: str
    version: str


@dataclasses.dataclass(frozen=True)
class Torch:
    """The torch versions that a build may use."""

    default: str
    supported: tuple[str, ...]
    tested: tuple[str, ...] = ()

    @property
    def untested(self) -> tuple[str, ...]:
        """The supported versions with which no suite has run."""
        return tuple(version for version in self.supported if version not in self.tested)


@dataclasses.dataclass(frozen=True)
class Lock:
    """The hashes of patches/ when it was last locked."""

    series: str  # sha256 of patches/series
    patches: Mapping[str, str]  # file name of a patch to its sha256
    files: Mapping[str, str]  # path of a new file in k2's tree to what `digest` says of it

    def differences(self, other: "Lock") -> list[str]:
        """Lists the differences of `other`, one short line each."""
        lines = []
        if self.series != other.series:
            lines.append("series: changed")
        for kind, mine, theirs in (
            ("", self.patches, other.patches),
            ("files/", self.files, other.files),
        ):
            for name in sorted(mine.keys() | theirs.keys()):
                if name not in theirs:
                    lines.append(f"{kind}{name}: missing")
                elif name not in mine:
                    lines.append(f"{kind}{name}: not in the lock")
                elif mine[name] != theirs[name]:
                    lines.append(f"{kind}{name}: changed")
        return lines


@dataclasses.dataclass(frozen=True)
class Upstream:
    """All of upstream.toml."""

    pin: Pin
    torch: Torch
    lock: Lock
    budget: int | None = None  # the lines that patches may touch in upstream's files, or None


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def load(path: Path, locked: bool = True) -> Upstream:
    """Reads upstream.toml.

    Args:
      locked: whether to read the lock; else the lock is empty, and a merge
        conflict in it does not matter.
    """
    try:
        text = path.read_text(encoding="utf-8")
        rest = without_lock(text)
        if not locked:
            text = rest + "\n[lock]\nseries = '-'\n"
        if _CONFLICT.search(text):
            raise _conflict(path.name, above=bool(_CONFLICT.search(rest)))
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise errors.K2mpsError(
            f"{path.name} is not valid TOML", why=str(error), next_command=_CORRECT
        ) from None
    read = functools.partial(_value, path.name, document)
    id_ = (_is_id, "a full object id, 40 hexadecimal digits")
    default = read("torch", "default")
    torch = Torch(
        default,
        tuple(read("torch", "supported", _is_texts, "a list of texts", [])),
        tuple(read("torch", "tested", _is_texts, "a list of texts", [default])),
    )
    if not {default, *torch.tested} <= set(torch.supported):
        raise errors.K2mpsError(
            f"{path.name}: [torch] supported must contain the default and all of tested",
            next_command=_CORRECT,
        )
    return Upstream(
        pin=Pin(
            url=read("upstream", "url"),
            commit=read("upstream", "commit", *id_),
            tree=read("upstream", "tree", *id_),
            version=read("upstream", "version"),
        ),
        torch=torch,
        lock=Lock(
            series=read("lock", "series"),
            patches=read("lock", "patches", _is_table, "a table of texts", {}),
            files=read("lock", "files", _is_table, "a table of texts", {}),
        ),
        budget=read("budget", "lines", lambda value: type(value) is int, "a number")
        if "budget" in document
        else None,
    )


def _conflict(name: str, above: bool) -> errors.K2mpsError:
    """git has left a conflict in the file."""
    if above:
        return errors.K2mpsError(
            f"{name} has a merge conflict",
            why="the pin or the torch versions were changed on both sides",
            next_command=f"resolve it in {name} above [lock], then k2mps lock",
        )
    return errors.K2mpsError(
        f"the lock in {name} has a merge conflict",
        why="patches were added, or the same one was changed, on both sides",
        next_command="resolve conflicts in patches/, then k2mps lock",
    )


def without_lock(text: str) -> str:
    kept = []
    inside = False
    for line in text.splitlines(keepends=True):
        header = _HEADER.match(line)
        if header:
            inside = header[1] == "lock"
        if not inside:
            kept.append(line)
    return "".join(kept)


def with_lock(text: str, lock: Lock) -> str:
    """upstream.toml's text with another lock; all else stays as written."""
    entries = [
        f"[lock.{name}]\n"
        + "\n".join(
            f'{json.dumps(key, ensure_ascii=False)} = "{content[key]}"\n' for key in sorted(content)
        )
        for name, content in (("patches", lock.patches), ("files", lock.files))
    ]
    tables = [f'[lock]\nseries = "{lock.series}"\n', *entries]
    return without_lock(text).rstrip("\n") + "\n\n" + "\n".join(tables)


def with_pin(text: str, pin: Pin) -> str:
    """upstream.toml's text with another pin; all else stays as written."""
    import tomlkit

    document = tomlkit.parse(text)
    table = document["upstream"]
    for name in ("commit", "tree", "version"):
        table[name] = getattr(pin, name)
    return tomlkit.dumps(document)


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(entry, str) for entry in value)


def _is_table(value: object) -> bool:
    return isinstance(value, dict) and _is_texts([*value.values()])


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_id(value: object) -> bool:
    return isinstance(value, str) and bool(_OBJECT_ID.fullmatch(value))


def _value(
    name: str,
    document: dict,
    table: str,
    key: str,
    fits: Callable = _is_text,
    kind: str = "a text",
    default: object = None,
):
    """A value of a parsed document that `fits` accepts."""
    found = document.get(table)
    if not isinstance(found, dict):
        raise errors.K2mpsError(f"{name}: [{table}] is missing", next_command=_CORRECT)
    value = found.get(key, default)
    if not fits(value):
        raise errors.K2mpsError(
            f"{name}: [{table}] {key} must be {kind}",
            why=f"it is {value!r}",
            next_command="k2mps lock" if table == "lock" else _CORRECT,
        )
    return value
