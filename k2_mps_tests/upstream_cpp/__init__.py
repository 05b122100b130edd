"""Runs k2's own C++ tests with pytest, in the suites upstream-cpp-cpu and upstream-cpp-mps."""
