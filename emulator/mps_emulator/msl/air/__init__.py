"""Runs kernels that Apple's compiler has compiled, and compiles kernels as it does.

Apple's compiler writes a kernel as AIR, which is the bitcode of LLVM with calls of functions like
``air.exp.f32``.  A file .metallib is a container of kernels.

``metallib``   reads and writes the container;
``functions``  names the functions of AIR for the functions of Metal's library;

to run kernels:

``module``     reads the text of a kernel's bitcode: its arguments and the functions it calls;
``lowering``   changes the text so that clang compiles it for the host;
``threadgroup_variables``  gives the text's threadgroup variables memory of the executor;
``library``    compiles kernels to a library for the emulator's executor;

to compile kernels:

``preparing``  gives a program entries and calls of AIR's functions, before clang's passes;
``writing``    makes the text of each kernel's bitcode, after clang's passes;
``constant_memory``  finds the pointers to `constant` memory;
``typed_pointers``   gives pointers the types that LLVM 14 needs;
``metadata``   describes a kernel and its arguments.

include/implementation/air.h has the functions that the kernels call.
"""
