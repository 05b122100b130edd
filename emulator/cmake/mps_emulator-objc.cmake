# The options with which clang compiles Objective-C++, for the emulator itself
# and for programs that use the emulator.  The Objective-C runtime is GCC's.
# For this runtime, clang supports neither ARC nor subscripts of collections.
#
#   MPS_EMULATOR_OBJC_FLAGS        clang's flags
#   MPS_EMULATOR_OBJCXX_OPTIONS    clang's flags as compile options of a target,
#                                  which apply to OBJCXX sources only
#   MPS_EMULATOR_OBJCXX_LIBRARIES  libobjc and libBlocksRuntime

# objc/objc.h is in a folder with gcc's other headers, which must not hide
# clang's headers.  So clang searches this folder last (-idirafter).
file(GLOB _mps_emulator_objc_headers "/usr/lib/gcc/*/*/include/objc/objc.h")
if(NOT _mps_emulator_objc_headers)
  message(FATAL_ERROR
    "GCC's Objective-C runtime headers (objc/objc.h) are missing: "
    "apt install libobjc-12-dev (or another version)")
endif()
list(SORT _mps_emulator_objc_headers COMPARE NATURAL ORDER DESCENDING)
list(GET _mps_emulator_objc_headers 0 _mps_emulator_objc_header)
get_filename_component(_mps_emulator_objc_include
  "${_mps_emulator_objc_header}/../.." ABSOLUTE)
get_filename_component(_mps_emulator_gcc_directory
  "${_mps_emulator_objc_include}/.." ABSOLUTE)

set(MPS_EMULATOR_OBJC_FLAGS
  -fobjc-runtime=gcc -fobjc-exceptions -fblocks
  -fconstant-string-class=NSConstantString
  "-idirafter${_mps_emulator_objc_include}")
set(MPS_EMULATOR_OBJCXX_OPTIONS
  "$<$<COMPILE_LANGUAGE:OBJCXX>:${MPS_EMULATOR_OBJC_FLAGS}>")

find_library(MPS_EMULATOR_LIBOBJC objc
  HINTS "${_mps_emulator_gcc_directory}")
find_library(MPS_EMULATOR_LIBBLOCKS BlocksRuntime)
if(NOT MPS_EMULATOR_LIBOBJC OR NOT MPS_EMULATOR_LIBBLOCKS)
  message(FATAL_ERROR
    "libobjc or libBlocksRuntime is missing: "
    "apt install libobjc-12-dev libblocksruntime-dev")
endif()
set(MPS_EMULATOR_OBJCXX_LIBRARIES
  "${MPS_EMULATOR_LIBOBJC}" "${MPS_EMULATOR_LIBBLOCKS}")
