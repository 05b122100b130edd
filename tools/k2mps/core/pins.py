"""upstream.toml: which k2 the series is for, and the lock of the series.

    [upstream]
    url, commit, tree, version    the pin: k2's repository, the commit that
                                  the series starts from, the tree of the
                                  commit and k2's version there
    [torch]
    default, supported, tested    the torch version of a build without
                                  --torch; the versions that --torch takes;
                                  and the versions with which all suites have
                                  run, which may be absent (then: default)
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

import functools
import hashlib
import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

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


class Pin(NamedTuple):
    """The upstream commit that the series starts from."""

    url: str
    commit: str
    tree: str
    version: str


class Torch(NamedTuple):
    """The torch versions that a build may use."""

    default: str
    supported: tuple[str, ...]
    tested: tuple[str, ...] = ()

    @property
    def untested(self) -> tuple[str, ...]:
        """The supported versions with which no suite has run."""
        return tuple(version for version in self.supported if version not in self.tested)


class Upstream(NamedTuple):
    """All of upstream.toml."""

    pin: Pin
    torch: Torch
    lock: Mapping[str, str]  # the hashes of patches/ when it was last locked, by path in it
    budget: int | None = None  # the lines that patches may touch in upstream's files, or None

    @property
    def patches(self) -> list[str]:
        """The names of the locked patches."""
        return [path for path in self.lock if path.endswith(".patch") and "/" not in path]


def differences(lock: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """How patches/ differs from its lock, one short line for each file."""
    lines = []
    for path in {**lock, **now}:
        if path not in now:
            lines.append(f"{path}: missing")
        elif path not in lock:
            lines.append(f"{path}: not in the lock")
        elif lock[path] != now[path]:
            lines.append(f"{path}: changed")
    return lines


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def load(path: Path, locked: bool = True) -> Upstream:
    """Reads upstream.toml; unless `locked`, the lock is empty, and a merge conflict in it does not
    matter."""
    try:
        text = path.read_text(encoding="utf-8")
        rest = without_lock(text)
        if not locked:
            text = rest + "\n[lock]\nseries = '-'\n"
        if _CONFLICT.search(rest):
            raise errors.K2mpsError(
                f"{path.name} has a merge conflict",
                why="the pin or the torch versions were changed on both sides",
                next_command=f"resolve it in {path.name} above [lock], then k2mps lock",
            )
        if _CONFLICT.search(text):
            raise errors.K2mpsError(
                f"the lock in {path.name} has a merge conflict",
                why="patches were added, or the same one was changed, on both sides",
                next_command="resolve conflicts in patches/, then k2mps lock",
            )
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise errors.K2mpsError(
            f"{path.name} is not valid TOML", why=str(error), next_command=_CORRECT
        ) from None
    read = functools.partial(_value, path.name, document)
    table = functools.partial(read, "lock", fits=_is_table, kind="a table of texts", default={})
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
        lock={
            "series": read("lock", "series"),
            **table("patches"),
            **{f"files/{path}": digest for path, digest in table("files").items()},
        },
        budget=read("budget", "lines", lambda value: type(value) is int, "a number")
        if "budget" in document
        else None,
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


def with_lock(text: str, lock: Mapping[str, str]) -> str:
    """upstream.toml's text with another lock; all else stays as written."""
    tables: dict[str, list[str]] = {"patches": [], "files": []}
    for path in sorted(lock.keys() - {"series"}):
        name = json.dumps(path.removeprefix("files/"), ensure_ascii=False)
        table = "files" if path.startswith("files/") else "patches"
        tables[table].append(f'{name} = "{lock[path]}"\n')
    parts = [f'[lock]\nseries = "{lock["series"]}"\n']
    parts += [f"[lock.{name}]\n" + "\n".join(entries) for name, entries in tables.items()]
    return without_lock(text).rstrip("\n") + "\n\n" + "\n".join(parts)


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
