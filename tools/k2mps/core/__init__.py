"""The base of all other packages: git, processes, files, errors; independent of commands."""
