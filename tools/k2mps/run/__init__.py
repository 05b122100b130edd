"""Runs what uses a build of k2: the suites, a comparison with the CPU, and checks of commits."""
