"""Running what stands on a build: suites, fuzz, benchmarks, kernels, pages."""
