"""k2's own C++ tests as tests of pytest: suites upstream-cpp-cpu and upstream-cpp-mps."""
