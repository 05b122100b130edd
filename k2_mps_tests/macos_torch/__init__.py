"""Compares facts of a torch for macOS, on which k2 relies, with known facts."""
