"""The Metal Shading Language front end of the emulator.

The front end compiles an MSL source text to a shared object for the host CPU,
and refuses programs that Metal's compiler refuses.  The emulator starts the
front end as a program of its own, ``python -m mps_emulator.msl``.

The steps, one module each:

``toolchain``    finds and calls clang and libclang;
``lexer``        cuts preprocessed text into tokens;
``rewriting``    rewrites MSL's own syntax as C++ for OpenCL;
``analysis``     reads signatures from clang's AST, and refuses programs;
``codegen``      writes an entry function for each kernel, and the library's table;
``diagnostics``  maps errors to places in the original text;
``pipeline``     puts them together.
"""
