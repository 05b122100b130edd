"""What everything else stands on: git, processes, files, errors; knows no command."""
