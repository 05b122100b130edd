"""The entry point: the script tools/bin/k2mps runs `python -m k2mps`."""

from k2mps.cli import ending

if __name__ == "__main__":
    ending.run()
