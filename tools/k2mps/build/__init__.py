"""Building k2: what that needs, the environment, the toolchain for macOS."""
