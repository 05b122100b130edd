"""Compiles the headers that the series touches as a HIP build of k2 would."""
