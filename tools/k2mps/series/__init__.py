"""Reads and checks the files of patches/, without a checkout of k2."""
