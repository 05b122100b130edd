"""Carries the series to newer upstream commits, and makes pull requests."""
