"""Makes files .metallib for tests, from the text of modules in the dialect of LLVM that AIR is."""

import struct
import subprocess

from mps_emulator.msl import toolchain

_HEADER = """
target triple = "air64-apple-macosx14.0.0"
"""

# kernel void scale(device float *x [[buffer(0)]], constant float &s [[buffer(1)]],
#                   uint i [[thread_position_in_grid]]) { x[i] = abs(x[i] * s); }
SCALE = """
define void @scale(ptr addrspace(1) %x, ptr addrspace(2) %s, i32 %i) {
  %pointer = getelementptr float, ptr addrspace(1) %x, i32 %i
  %value = load float, ptr addrspace(1) %pointer
  %factor = load float, ptr addrspace(2) %s
  %product = fmul float %value, %factor
  %result = tail call float @air.fabs.f32(float %product) #0
  store float %result, ptr addrspace(1) %pointer
  ret void
}
declare float @air.fabs.f32(float) #0
attributes #0 = { nounwind readnone }
!air.kernel = !{!0}
!0 = !{ptr @scale, !1, !2}
!1 = !{}
!2 = !{!3, !4, !5}
!3 = !{i32 0, !"air.buffer", !"air.location_index", i32 0, i32 1, !"air.read_write", \
!"air.address_space", i32 1, !"air.arg_type_size", i32 4, !"air.arg_type_align_size", i32 4, \
!"air.arg_type_name", !"float", !"air.arg_name", !"x"}
!4 = !{i32 1, !"air.buffer", !"air.buffer_size", i32 4, !"air.location_index", i32 1, i32 1, \
!"air.read", !"air.address_space", i32 2, !"air.arg_type_size", i32 4, \
!"air.arg_type_align_size", i32 4, !"air.arg_type_name", !"float", !"air.arg_name", !"s"}
!5 = !{i32 2, !"air.thread_position_in_grid", !"air.arg_type_name", !"uint", \
!"air.arg_name", !"i"}
"""


def bitcode(text: str) -> bytes:
    """Returns the bitcode of a module."""
    command = [toolchain.find_clang(), *"-x ir - -w -c -emit-llvm -o -".split()]
    command += ["-Xclang", "-disable-llvm-passes", "--target=x86_64-linux-gnu"]
    done = subprocess.run(command, input=(_HEADER + text).encode(), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def metallib(kernels: dict[str, str]) -> bytes:
    """Returns the content of a .metallib.

    This function does not use metallib.write(), so that a mistake of the package about the
    container makes a test fail.

    Args:
      kernels: {name of a kernel: the text of its module}.
    """
    modules = {name: bitcode(text) for name, text in kernels.items()}
    entries, offset = b"", 0
    for name, module in modules.items():
        fields = {
            b"NAME": name.encode() + b"\0",
            b"TYPE": b"\2",
            b"MDSZ": struct.pack("<Q", len(module)),
            b"OFFT": struct.pack("<3Q", 0, 0, offset),
            b"VERS": struct.pack("<4H", 2, 6, 3, 1),
        }
        entry = b"".join(tag + struct.pack("<H", len(x)) + x for tag, x in fields.items()) + b"ENDT"
        entries += struct.pack("<I", len(entry) + 4) + entry
        offset += len(module)
    functions = struct.pack("<I", len(modules)) + entries
    begin = 88
    end = begin + len(functions)
    parts = struct.pack("<8Q", begin, len(functions), end, 0, end, 0, end, offset)
    magic = b"MTLB" + bytes(12)
    return magic + struct.pack("<Q", end + offset) + parts + functions + b"".join(modules.values())
