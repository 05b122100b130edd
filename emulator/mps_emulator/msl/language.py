"""Versions of the Metal Shading Language and the differences between them."""

import re

NEWEST = (4, 0)
VERSIONS = (
    *((1, minor) for minor in range(3)),
    *((2, minor) for minor in range(5)),
    *((3, minor) for minor in range(3)),
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
        """The C++ standard of the version, as an argument of clang's -std=."""
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
        """The compiler's predefined macros, [(name, value)]."""
        platform = "__METAL__" if self.version >= (3, 0) else "__METAL_MACOS__"
        return [("__METAL_VERSION__", str(self.metal_version)), (platform, "1")]
