"""Building k2: the requirements, the environment, the toolchain for macOS."""
