"""Tests and times k2 with the series on an NVIDIA GPU.

`prepare` makes a folder that contains all that a machine with this GPU needs.
"""
