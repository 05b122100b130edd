"""Builds k2, with its requirements, the virtual environment, and a toolchain for macOS on Linux."""
