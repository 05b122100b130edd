"""The Metal Shading Language front end of the emulator.

The front end compiles an MSL source text to a shared object for the host CPU,
and refuses programs that Metal's compiler refuses.  The emulator starts the
front end in a separate process, ``python -m mps_emulator.msl``.

Each step has a module:

``toolchain``    finds and calls clang and libclang;
``lexer``        cuts preprocessed text into tokens;
``rewriting``    translates MSL's own syntax to C++ for OpenCL;
``analysis``     reads the kernels' signatures from clang's AST, and refuses programs;
``kernel``       describes a kernel and its parameters;
``codegen``      writes an entry function for each kernel, and a table of the kernels;
``diagnostics``  maps errors to places in the original text;
``pipeline``     calls the other modules.
"""
