"""Checks that each commit of a pull request to k2 builds, passes tests and has k2's style."""
