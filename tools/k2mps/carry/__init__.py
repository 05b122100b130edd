"""Counts the lines of the series, carries it to newer upstream commits, makes pull requests."""
