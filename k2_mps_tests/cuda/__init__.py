"""Tests and times k2 with the series on an NVIDIA GPU.

`prepare` makes a folder that contains everything that a machine with such a GPU needs.
"""
