# The settings with which clang and lld on Linux build for macOS on arm64.
#
# CMAKE_OSX_SYSROOT is the SDK that toolchain.py assembles, or Apple's SDK.
# CMAKE_OSX_DEPLOYMENT_TARGET is the oldest macOS on which the result runs.

set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_PROCESSOR arm64)
set(CMAKE_SYSTEM_VERSION 23.0.0)
# CMAKE_OSX_ARCHITECTURES is not set, because CMake would pass it to the compiler only
# from CMake's second run on.  CMAKE_<LANG>_COMPILER_TARGET already has the
# architecture.

# A build needs only clang and lld.  If CMAKE_STRIP were set, pybind11 would strip the
# module with a program of LLVM's package; the linker's option -x has the same effect.
# CMake requires the programs AR, RANLIB and INSTALL_NAME_TOOL but does not run them,
# because the build makes no archive and installs nothing.
set(CMAKE_STRIP "")
foreach(program AR RANLIB INSTALL_NAME_TOOL)
  set(CMAKE_${program} "not-needed-${program}")
endforeach()
foreach(language C CXX OBJC OBJCXX)
  set(CMAKE_${language}_COMPILER clang-19)
  if(language MATCHES "CXX")
    set(CMAKE_${language}_COMPILER clang++-19)
    # Apple's clang, which builds torch, has sized deallocation off by default.
    set(CMAKE_${language}_FLAGS_INIT "-fno-sized-deallocation")
  endif()
  set(CMAKE_${language}_COMPILER_TARGET
    arm64-apple-macos${CMAKE_OSX_DEPLOYMENT_TARGET})
endforeach()
# If the headers do not declare a selector, clang only warns, and guesses the selector's
# type.  This option makes the warning an error.
string(APPEND CMAKE_OBJCXX_FLAGS_INIT " -Werror=objc-method-access")

# The build of libc++ writes its configuration into the header __config_site.  zig's
# headers lack this file and expect the configuration as macros.  With these macros, libc++
# also respects the deployment target.  Apple's SDK has this header.
if(NOT EXISTS "${CMAKE_OSX_SYSROOT}/usr/include/c++/v1/__config_site")
  add_compile_definitions(_LIBCPP_ABI_VERSION=1 _LIBCPP_ABI_NAMESPACE=__1
    _LIBCPP_HARDENING_MODE_DEFAULT=2 _LIBCPP_PSTL_BACKEND_SERIAL)
endif()

foreach(kind EXE SHARED MODULE)
  # With -mlinker-version, clang uses the options of that version of Apple's linker.
  set(CMAKE_${kind}_LINKER_FLAGS_INIT "-fuse-ld=lld -mlinker-version=820")
endforeach()
string(APPEND CMAKE_MODULE_LINKER_FLAGS_INIT " -Wl,-x")

# CMake looks for programs only on this machine.  It looks for headers, libraries and packages
# in the SDK, and then on this machine.
set(CMAKE_FIND_ROOT_PATH "${CMAKE_OSX_SYSROOT}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY BOTH)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE BOTH)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE BOTH)
