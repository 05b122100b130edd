"""Checks each Metal kernel of the series by itself, against a reference on the CPU.

The check of NAME.metal in patches/files/k2/csrc/mps/kernels is checks/NAME.py.  Its
`cases()` yields case.Case objects, at least one for each kernel of the file.  A new
kernel needs a change of this module only.  For a header, checks/NAME.metal has kernels that
call the header's functions; the check is again checks/NAME.py.

`k2mps kernels`, or ``python -m k2_mps_tests.kernels``, runs the checks.
"""
