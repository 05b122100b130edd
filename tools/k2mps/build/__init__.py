"""Builds k2: its requirements, the virtual environment, and the toolchain for macOS on Linux."""
