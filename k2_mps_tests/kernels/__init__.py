"""Checks each Metal kernel of the series by itself, against a reference on the CPU.

The check of NAME.metal in patches/files/k2/csrc/mps/kernels is checks/NAME.py.  The function
`cases()` of a check yields case.Case objects, at least one for each kernel of the file.  So a
new kernel needs only new cases.  A header NAME.h has no kernels.  So checks/NAME.metal has kernels
that call the header's functions, and checks/NAME.py has the cases of these kernels.

`python -m k2_mps_tests.kernels` runs the checks.
"""
