"""`python -m k2mps`, and the command k2mps."""

from k2mps.cli.command_line import run as main

if __name__ == "__main__":
    main()
