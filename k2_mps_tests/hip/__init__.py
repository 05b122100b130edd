"""What a HIP build of k2 would compile of the headers that the series touches."""
