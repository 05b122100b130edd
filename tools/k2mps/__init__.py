"""k2mps: applies, builds, tests and carries the k2-mps patch series."""

__version__ = "0.1.0"
