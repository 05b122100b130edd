"""The Metal Shading Language front end of the emulator.

It turns an MSL source text into a shared object for the host CPU, and refuses
what Metal's compiler refuses.  It runs as a program of its own
(``python -m mps_emulator.msl``), also when the emulator compiles a library.

The steps, one module each:

``toolchain``    finds clang and libclang and calls them;
``lexer``        cuts preprocessed text into tokens;
``rewriter``     rewrites MSL's own syntax as C++ for OpenCL;
``repairs``      rewrites further, where clang's types are needed for it;
``analysis``     reads signatures and refuses programs, on clang's AST;
``codegen``      writes one entry function a kernel and the library's table;
``diagnostics``  says where in the original text an error is;
``pipeline``     puts them together.
"""
