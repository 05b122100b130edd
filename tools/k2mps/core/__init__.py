"""The core of the tool: git, processes, files and errors.  It imports no other part of the tool."""
