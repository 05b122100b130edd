"""The series and newer upstream: report, probe, rebase, pull requests."""
