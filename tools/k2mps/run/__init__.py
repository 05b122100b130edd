"""Everything that uses a build: suites, fuzzer, benchmarks, kernels, pages."""
