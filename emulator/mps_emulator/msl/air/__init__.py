"""Runs kernels that Apple's compiler has compiled.

Apple's compiler writes a kernel as AIR, which is the bitcode of LLVM with calls of functions like
``air.exp.f32``.  A file .metallib is a container of kernels.

``metallib``  reads the container;
``module``    reads the text of a kernel's bitcode: its arguments and the functions it calls;
``lowering``  changes the text so that clang compiles it for the host;
``library``   compiles kernels to a library for the emulator's executor.

include/implementation/air.h has the functions that the kernels call.
"""
