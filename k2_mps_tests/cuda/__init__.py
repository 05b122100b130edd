"""k2 with the series on an NVIDIA GPU.

`k2mps cuda --prepare` copies the other files of this folder for such a machine.
"""
