"""Runs what uses a build of k2: suites, fuzzer, benchmarks, checks of kernels, pages."""
