"""Reads upstream.toml, which says for which commit of k2 the series is made.

[upstream]
url                           k2's repository
commit, tree, version         the pin: the commit that the series starts
                              from, its tree, and its version of k2
[torch]
default                       the torch version of a build without
                              --torch
mac                           the torch version of a build without
                              --torch on a Mac or for a Mac; may be
                              absent
supported                     the torch versions that --torch accepts;
                              all suites have run with each
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

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
    mac: str = ""  # the version for a Mac; "" if that is `default`, too

    def default_for(self, mac: bool) -> str:
        """Returns the torch version of a build without --torch, for a Mac or another system."""
        return self.mac if mac and self.mac else self.default


class Upstream(NamedTuple):
    """All of upstream.toml."""

    pin: Pin
    torch: Torch


def sha256(content: bytes) -> str:
    import hashlib  # hashlib takes time to import, and `k2mps apply` does not need it.

    return hashlib.sha256(content).hexdigest()


def load(path: Path) -> Upstream:
    """Reads upstream.toml."""

    def wrong(fault: str, why: str = "") -> errors.K2mpsError:
        """Returns the error for a file with a fault, such as "is not valid TOML"."""
        return errors.K2mpsError(
            f"{path.name} {fault}",
            why=why,
            next_command=f"correct the file, or resolve git's conflict in it; or git checkout HEAD"
            f" {path.name}, which restores the committed file and discards all edits of it",
        )

    if path.is_symlink():
        raise wrong("is a symbolic link", "a rebase would replace the link by a file")
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # not TOML, not UTF-8, or a number with too many digits
        raise wrong("is not valid TOML", str(error)) from None

    def read(
        table: str,
        key: str,
        fits: Callable[[object], bool] = _is_text,
        kind: str = "a text",
        default: object = None,
    ) -> Any:
        """Returns a value of the file, or `default` if the file has none.

        Args:
          fits: whether a value is valid; an error is raised otherwise.
          kind: what a valid value is, for the error.
        """
        section = document.get(table)
        if not isinstance(section, dict):
            raise wrong(f"has no table [{table}]")
        value = section.get(key, default)
        if not fits(value):
            raise wrong(f"has a [{table}] {key} that is not {kind}", f"it is {value!r}")
        return value

    kind_of_id = "a full object id, 40 hexadecimal digits"
    default = read("torch", "default")
    supported = tuple(read("torch", "supported", _is_texts, "a list of texts", []))
    mac = read("torch", "mac", default=default)
    if not {default, mac} <= set(supported):
        raise wrong("has a [torch] supported without the default")
    return Upstream(
        pin=Pin(
            url=read("upstream", "url", is_url, "a url that does not begin with '-'"),
            commit=read("upstream", "commit", _is_id, kind_of_id),
            tree=read("upstream", "tree", _is_id, kind_of_id),
            version=read("upstream", "version"),
        ),
        torch=Torch(default, supported, mac),
    )


def with_pin(text: str, pin: Pin) -> str:
    """Replaces the pin in the text of upstream.toml, and keeps the rest of the text as it is."""
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
    """Whether a value is a text that git cannot mistake for an option when it expects a url."""
    return _is_text(value) and value.isprintable() and not value.startswith("-")


def _is_id(value: object) -> bool:
    return isinstance(value, str) and bool(_OBJECT_ID.fullmatch(value))
