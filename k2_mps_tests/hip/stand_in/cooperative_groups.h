// Stands in for CUDA's header, of which k2's headers use nothing here.
