"""The suites of `k2mps test`, and programs that a person or CI starts.

Each of these folders is a suite, or two suites for two devices: docs, examples, kernels,
macos_torch, parity, tooling, upstream and upstream_cpp.  k2_mac and the emulator have their own
tests.

The other folders are programs.  mutation and waits check that the suites notice planted mistakes.
agx, apple and hip check the kernels and headers with other compilers.  commits checks each commit
of a pull request.  benchmarks measures times, cuda runs the series on an NVIDIA GPU, and report is
`make mac-report`.
"""
