"""Versions of the Metal Shading Language and the differences between them.

The emulator has those that torch and k2 ask for, and newer ones.
"""

import re

VERSIONS = ((3, 1), (3, 2), (4, 0))
NEWEST = VERSIONS[-1]


class Language:
    """One version of the language."""

    def __init__(self, version=NEWEST):
        if version not in VERSIONS:
            known = ", ".join(f"{major}.{minor}" for major, minor in VERSIONS)
            raise ValueError(
                f"Metal {version[0]}.{version[1]} is no language version of the emulator, which "
                f"has {known}"
            )
        self.version = version

    @classmethod
    def parse(cls, text):
        match = re.fullmatch(r"(\d+)\.(\d+)", text)
        if match is None:
            raise ValueError("a language version looks like 3.1: " + text)
        return cls((int(match[1]), int(match[2])))

    @property
    def metal_version(self):
        """The value of __METAL_VERSION__."""
        major, minor = self.version
        return major * 100 + minor * 10

    @property
    def cplusplus(self):
        """The C++ standard of the version, as an argument of clang's -std=."""
        return "c++17" if self.is_cplusplus17 else "c++14"

    @property
    def is_cplusplus17(self):
        return self.version >= (4, 0)

    @property
    def has_lambdas(self):
        return self.version >= (3, 2)
