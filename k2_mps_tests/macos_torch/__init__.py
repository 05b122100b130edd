"""Reads facts on which k2 relies from a wheel of torch for macOS; compares with known facts."""
