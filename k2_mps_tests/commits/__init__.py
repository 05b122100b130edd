"""Whether each commit of a pull request to k2 builds, imports, passes and is in k2's style."""
