"""Versions of the Metal Shading Language and what differs between them."""

import re

NEWEST = (4, 0)
VERSIONS = (
    (1, 0),
    (1, 1),
    (1, 2),
    (2, 0),
    (2, 1),
    (2, 2),
    (2, 3),
    (2, 4),
    (3, 0),
    (3, 1),
    (3, 2),
    (4, 0),
)


class Language:
    """One version of the language."""

    def __init__(self, version=NEWEST):
        if version not in VERSIONS:
            known = ", ".join(f"{major}.{minor}" for major, minor in VERSIONS)
            raise ValueError(
                f"Metal {version[0]}.{version[1]} is not a language version (there are {known})"
            )
        self.version = version

    @classmethod
    def parse(cls, text):
        match = re.fullmatch(r"(\d+)\.(\d+)", text)
        if match is None:
            raise ValueError("a language version looks like 3.1: " + text)
        return cls((int(match[1]), int(match[2])))

    def __str__(self):
        return f"Metal {self.version[0]}.{self.version[1]}"

    @property
    def metal_version(self):
        """The value of __METAL_VERSION__."""
        major, minor = self.version
        return major * 100 + minor * 10

    @property
    def cplusplus(self):
        """The C++ that the version is based on, as clang's -std= has it."""
        if self.version >= (4, 0):
            return "c++17"
        if self.version >= (2, 0):
            return "c++14"
        return "c++11"

    @property
    def is_cplusplus17(self):
        return self.version >= (4, 0)

    @property
    def has_lambdas(self):
        return self.version >= (3, 2)

    @property
    def predefined_macros(self):
        """(name, value) of what the compiler defines by itself."""
        macros = [("__METAL_VERSION__", str(self.metal_version))]
        if self.version >= (3, 0):
            macros.append(("__METAL__", "1"))
        else:
            macros.append(("__METAL_MACOS__", "1"))
        return macros
