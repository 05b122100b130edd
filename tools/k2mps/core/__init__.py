"""What all other packages build on: git, processes, files and errors.  It imports none of them."""
