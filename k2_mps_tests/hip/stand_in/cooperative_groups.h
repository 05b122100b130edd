// Stands in for CUDA's header: k2 names nothing of it here.
