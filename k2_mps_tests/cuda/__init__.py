"""k2 with the series on an NVIDIA GPU.

`prepare` makes a folder for such a machine.
"""
