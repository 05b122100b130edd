"""The kernels that ../apple_kernels.py runs, and the wheels that have the kernels."""
