// Stands in for CUDA's header, of which the code that clang checks uses no name.
