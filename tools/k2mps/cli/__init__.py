"""The command line: parses options, and prints results and errors."""
