"""Reads facts from a release of torch for macOS, and compares them with the known facts.

k2 relies on these facts.

`known.toml` lists the releases that were read, and has a table for each fact:

    kind      how to read the fact, see `_READERS`
    of        depending on the kind: a function, a list of symbols or operators, or a pattern
    what      a pattern, for the kinds calls, constants and pools
    known     {release: the fact's values}; the values hold until the next release in the table
    queue     for the kind calls, {release: whether k2 calls the function "inside" or "outside" of
              torch's dispatch queue}
    affects   the files of k2 that rely on the fact
    why       how these files rely on the fact
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from k2mps.core import errors
from k2mps.core.pins import tomllib
from packaging.tags import Tag
from packaging.version import Version

from k2_mps_tests.macos_torch.library import Library

TABLE = Path(__file__).with_name("known.toml")

# Functions of torch's backend, except constructors and destructors.  The calls that such a function
# makes count as calls of the function's caller.
_BACKEND = re.compile(r"^__ZNK?2at3mps(?!.*[CD][12]E)")
# The patterns of calls that hang or crash the program if the caller runs inside, or outside, of
# torch's dispatch queue.
_FORBIDDEN = {
    "inside": re.compile(r"_dispatch_((barrier_)?sync|async_and_wait|assert_queue_not)"),
    "outside": re.compile(r"_dispatch_assert_queue(?!_not)"),
}

Fact = Mapping[str, Any]


class Release(NamedTuple):
    """A release of torch for macOS."""

    version: str
    library: Library  # libtorch_cpu.dylib
    tags: Sequence[Tag]  # the tags of all the release's wheels for macOS


class Finding(NamedTuple):
    """A fact of a release, compared with the known fact."""

    fact: str
    gained: list[str]  # the values that only the release has
    lost: list[str]  # the known values that the release lacks
    breaks: list[str]  # the values that break k2, whether known or not
    affects: list[str]
    why: str

    @property
    def verdict(self) -> str:
        if self.breaks:
            return "BREAKS"
        return "differs" if self.gained or self.lost else "as known"


class Known(NamedTuple):
    """The table of known facts."""

    releases: list[str]
    facts: Mapping[str, Fact]

    def before(self, version: str) -> str:
        """Returns the newest known release that is not newer than a version.

        Raises:
          K2mpsError: all known releases are newer.
        """
        older = [release for release in self.releases if Version(release) <= Version(version)]
        if not older:
            raise errors.K2mpsError(
                f"nothing is known of torch {version} or older",
                why=f"the oldest release in {TABLE.name} is {self.releases[0]}",
                next_command="name a newer release",
            )
        return max(older, key=Version)

    def values(self, version: str) -> dict[str, list[str]]:
        """Returns the known values of each fact in a release, {fact: values}."""
        return {name: known_at(fact["known"], version) for name, fact in self.facts.items()}


def known_at(values: Mapping[str, Any], torch: str) -> Any:
    """Returns the value that holds in a version of torch.

    Args:
      values: {first version with the value: value}.
      torch: a version.  A version that is older than all versions in `values` gets the oldest
        value.
    """
    older = [since for since in values if Version(since) <= Version(torch)]
    return values[max(older, key=Version, default=min(values, key=Version))]


def load(path: Path = TABLE) -> Known:
    return Known(**tomllib.loads(path.read_text(encoding="utf-8")))


def read(release: Release, known: Known) -> dict[str, list[str]]:
    """Reads from a release the values of each fact in the table; returns {fact: values}."""
    return {name: _READERS[fact["kind"]](release, fact) for name, fact in known.facts.items()}


def compare(found: Mapping[str, list[str]], known: Known, base: str) -> Iterator[Finding]:
    """Compares the values of a release with the known values of an earlier release.

    Yields a Finding for each fact.

    Args:
      found: the result of read().
      base: the version of the earlier release.
    """
    for name, expected in known.values(base).items():
        fact, values = known.facts[name], found[name]
        forbidden = _FORBIDDEN[known_at(fact["queue"], base)].match if "queue" in fact else None
        yield Finding(
            fact=name,
            gained=[value for value in values if value not in expected],
            lost=[value for value in expected if value not in values],
            breaks=[*filter(forbidden, values)] if forbidden else [],
            affects=fact["affects"],
            why=fact["why"],
        )


def _calls(release: Release, fact: Fact) -> list[str]:
    """Returns those callees of a function that match a pattern.

    The function's calls include the calls of each callee that matches _BACKEND.
    """
    if not release.library.has(fact["of"]):
        return ["the function is not there"]
    found = release.library.reached(fact["of"], _BACKEND)
    return sorted(name for name in found if re.search(fact["what"], name))


def _constants(release: Release, fact: Fact) -> list[str]:
    """Returns the constants that a function stores in memory, or passes to another function.

    The name of the memory, or of the other function, must match the pattern.
    """
    steps = release.library.steps(fact["of"])
    return [str(value) for what, value in steps if re.search(fact["what"], what)]


def _pools(release: Release, fact: Fact) -> list[str]:
    """Returns "shared" or "private" for the memory of each pool that a function makes.

    A bit of the pool's flags decides whether the memory is shared.
    """
    return ["shared" if int(flags) & 2 else "private" for flags in _constants(release, fact)]


def _missing(release: Release, fact: Fact) -> list[str]:
    """Returns the symbols that the library does not export."""
    exported = release.library.exports()
    return [symbol for symbol in fact["of"] if symbol not in exported]


def _operators(release: Release, fact: Fact) -> list[str]:
    """Returns the operators that have a kernel for mps, a function in the namespace at::mps."""
    exported = "\n".join(release.library.exports())
    return [name for name in fact["of"] if f"\n__ZN2at3mps{len(name)}{name}E" in f"\n{exported}"]


def _texts(release: Release, fact: Fact) -> list[str]:
    """Returns the texts that a pattern's group matches in the library."""
    return sorted(
        {text.decode() for text in re.findall(fact["of"].encode(), release.library.content)}
    )


_READERS: Mapping[str, Callable[[Release, Fact], list[str]]] = {
    "calls": _calls,
    "constants": _constants,
    "pools": _pools,
    "missing": _missing,
    "operators": _operators,
    "texts": _texts,
    "macos": lambda release, fact: [release.library.macos],
    "platforms": lambda release, fact: sorted({tag.platform for tag in release.tags}),
    "pythons": lambda release, fact: sorted(
        {tag.abi for tag in release.tags}, key=lambda abi: (len(abi.rstrip("t")), abi)
    ),
}
