"""Each Metal kernel of the series by itself, against a reference on the CPU.

A file of patches/files/k2/csrc/mps/kernels, NAME.metal, has its check in
checks/NAME.py, which gives the cases: `cases()` yields case.Case objects, at
least one for each kernel of the file.  That module is the one place to edit
for a new kernel.  checks/NAME.metal has kernels that call the functions of a
header, whose check is beside it.

``python -m k2_mps_tests.kernels --help`` runs them; so does `k2mps kernels`.
"""
