# Builds for macOS on arm64, on Linux, with clang and lld.
#
# CMAKE_OSX_SYSROOT names the SDK that toolchain.py puts together, and
# CMAKE_OSX_DEPLOYMENT_TARGET the least macOS.

set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_PROCESSOR arm64)
set(CMAKE_SYSTEM_VERSION 23.0.0)
# Not CMAKE_OSX_ARCHITECTURES: cmake makes a flag of that only from its second run on.
# CMAKE_<LANG>_COMPILER_TARGET names the architecture already.

# A build needs clang and lld only.  pybind11 would run a program of LLVM's package to
# strip a module; the linker's -x does the same.  CMake asks for the next three
# programs and runs none of them, since nothing is archived or installed.
set(CMAKE_STRIP "")
foreach(program AR RANLIB INSTALL_NAME_TOOL)
  set(CMAKE_${program} "not-needed-${program}")
endforeach()
foreach(language C CXX OBJC OBJCXX)
  set(CMAKE_${language}_COMPILER clang-19)
  if(language MATCHES "CXX")
    set(CMAKE_${language}_COMPILER clang++-19)
    # Apple's clang leaves sized deallocation off; torch is built with it.
    set(CMAKE_${language}_FLAGS_INIT "-fno-sized-deallocation")
  endif()
  set(CMAKE_${language}_COMPILER_TARGET
    arm64-apple-macos${CMAKE_OSX_DEPLOYMENT_TARGET})
endforeach()
# A selector that the headers do not declare is an error: clang would guess
# its type.
string(APPEND CMAKE_OBJCXX_FLAGS_INIT " -Werror=objc-method-access")

# zig's headers of libc++ take from the command line what a build of libc++ writes into
# a header.  The definitions make them heed which macOS has which symbol. Apple's libc++ has that
# header.
if(NOT EXISTS "${CMAKE_OSX_SYSROOT}/usr/include/c++/v1/__config_site")
  add_compile_definitions(_LIBCPP_ABI_VERSION=1 _LIBCPP_ABI_NAMESPACE=__1
    _LIBCPP_HARDENING_MODE_DEFAULT=2 _LIBCPP_PSTL_BACKEND_SERIAL)
endif()

foreach(kind EXE SHARED MODULE)
  # The version is that of the linker whose options clang may use.
  set(CMAKE_${kind}_LINKER_FLAGS_INIT "-fuse-ld=lld -mlinker-version=820")
endforeach()
string(APPEND CMAKE_MODULE_LINKER_FLAGS_INIT " -Wl,-x")

# Programs are this machine's; headers and libraries must not be.
set(CMAKE_FIND_ROOT_PATH "${CMAKE_OSX_SYSROOT}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY BOTH)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE BOTH)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE BOTH)
