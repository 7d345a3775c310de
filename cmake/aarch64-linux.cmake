# Builds for AArch64 Linux on another machine: a Debian root of that architecture in HOTLOOP_SYSROOT (`./dev test --aarch64` makes one), programs
# run under qemu-user.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES HOTLOOP_SYSROOT)
set(CMAKE_SYSROOT "${HOTLOOP_SYSROOT}")
set(CMAKE_FIND_ROOT_PATH "${HOTLOOP_SYSROOT}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
# Where the libraries of libraries lie.
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,-rpath-link,${HOTLOOP_SYSROOT}/usr/lib/aarch64-linux-gnu")
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L "${HOTLOOP_SYSROOT}")
