// Stands in for CUDA's header.  The code that clang checks uses no name of the
// header.
