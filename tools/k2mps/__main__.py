"""`python -m k2mps`."""

from k2mps.cli import run

run()
