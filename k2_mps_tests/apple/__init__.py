"""Compares what k2's kernels ask of Metal with what Apple's compiler writes for such code.

The wheels of mlx-metal and of torch for macOS contain kernels that Apple's compiler compiled to
AIR.  The package needs no Mac: it reads the wheels.
"""
