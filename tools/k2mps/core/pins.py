"""upstream.toml: which k2 the series is for.

[upstream]
url, commit, tree, version    the pin: k2's repository, the commit that
                              the series starts from, the tree of the
                              commit and k2's version there
[torch]
default, mac, supported       the torch version of a build without
                              --torch, here and for a Mac; the versions
                              that --torch takes, with which all suites
                              have run
[budget]
lines                         how many lines the patches may touch in
                              upstream's files, added and removed; may
                              be absent
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from k2mps.core import errors

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_OBJECT_ID = re.compile(r"[0-9a-f]{40}")


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
    mac: str = ""  # the default of builds for a Mac; "" for the other one

    def default_for(self, mac: bool) -> str:
        """The default of a build for a Mac, or for another system."""
        return self.mac if mac and self.mac else self.default


class Upstream(NamedTuple):
    """All of upstream.toml."""

    pin: Pin
    torch: Torch
    budget: int | None = None  # the lines that patches may touch in upstream's files, or None


def sha256(content: bytes) -> str:
    import hashlib  # hashlib takes time to import, and `k2mps apply` does not need it.

    return hashlib.sha256(content).hexdigest()


def load(path: Path) -> Upstream:
    """Reads upstream.toml."""

    def wrong(what: str, why: str = "") -> errors.K2mpsError:
        return errors.K2mpsError(
            f"{path.name} {what}",
            why=why,
            next_command=f"correct it, or resolve git's conflict in it; git checkout {path.name}"
            " brings the committed file back",
        )

    if path.is_symlink():
        raise wrong("is a symbolic link", "a rebase would replace the link by a file")
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise wrong("is nested too deeply") from None
    except ValueError as error:  # of tomllib, of UTF-8, or of a number that is too long
        raise wrong("is not valid TOML", str(error)) from None

    def read(table: str, key: str, fits: Callable = _is_text, kind="a text", default=None):
        found = document.get(table)
        if not isinstance(found, dict):
            raise wrong(f"has no table [{table}]")
        value = found.get(key, default)
        if not fits(value):
            raise wrong(f"has a [{table}] {key} that is not {kind}", f"it is {value!r}")
        return value

    id_ = (_is_id, "a full object id, 40 hexadecimal digits")
    default = read("torch", "default")
    supported = tuple(read("torch", "supported", _is_texts, "a list of texts", []))
    mac = read("torch", "mac", default=default)
    if not {default, mac} <= set(supported):
        raise wrong("has a [torch] supported without the default")
    is_count = (lambda value: type(value) is int, "a number")
    return Upstream(
        pin=Pin(
            url=read("upstream", "url", is_url, "a url that does not begin with '-'"),
            commit=read("upstream", "commit", *id_),
            tree=read("upstream", "tree", *id_),
            version=read("upstream", "version"),
        ),
        torch=Torch(default, supported, mac),
        budget=read("budget", "lines", *is_count) if "budget" in document else None,
    )


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


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def is_url(value: object) -> bool:
    """Whether git takes a value as a repository's url, and not as an option."""
    return _is_text(value) and value.isprintable() and not value.startswith("-")


def _is_id(value: object) -> bool:
    return isinstance(value, str) and bool(_OBJECT_ID.fullmatch(value))
