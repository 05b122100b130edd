"""k2's own C++ tests, as pytest sees them: suites upstream-cpp-cpu and -mps."""
