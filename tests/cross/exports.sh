#!/usr/bin/env bash
# Exported steps give the same bits from the object and from the C source by gcc and by clang, on x86-64 and, under qemu-user, on AArch64, whose
# bits are those of x86-64-v3; and the source builds for Windows.
#
# usage: exports.sh HOTLOOP      needs gcc, clang, aarch64-linux-gnu-gcc, qemu-aarch64 and x86_64-w64-mingw32-gcc
set -euo pipefail
hotloop=$(realpath "$1")
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
flags="-std=c11 -O3 -Wall -Wextra -Werror -ffp-contract=off -fno-math-errno -I."
passed=0 failed=0
check() {  # WHAT COMMAND...    its output must be that of the object
  local what=$1
  shift
  if "$@" >actual 2>&1 && cmp -s actual expected; then
    passed=$((passed + 1)) && echo "$what: the same $(wc -l <expected) outputs"
  else
    failed=$((failed + 1)) && echo "$what: other outputs" && diff actual expected | head -4
  fi
}
for model in lstm gru dense conv1d; do
  "$hotloop" import "$here/../data/rtneural/$model.json" -o "$model" >/dev/null
  "$hotloop" export "$model" -o x86 --name net --target x86-64-v2 >/dev/null
  "$hotloop" export "$model" -o fused --name net --target x86-64-v3 >/dev/null
  "$hotloop" export "$model" -o arm --name net --target aarch64 >/dev/null
  cc -O2 -Ix86 -o by_object "$here/stream.c" x86/net.o
  ./by_object >expected
  # shellcheck disable=SC2086
  {
    gcc $flags -march=x86-64-v2 -Ix86 -o by_gcc "$here/stream.c" x86/net.c && check "$model, gcc" ./by_gcc
    clang $flags -march=x86-64-v2 -Ix86 -o by_clang "$here/stream.c" x86/net.c && check "$model, clang" ./by_clang
    x86_64-w64-mingw32-gcc $flags -march=x86-64-v2 -Ix86 -o windows.exe "$here/stream.c" x86/net.c
    echo "$model: builds for Windows"
    aarch64-linux-gnu-gcc -O2 -static -Iarm -o arm_object "$here/stream.c" arm/net.o
    qemu-aarch64 arm_object >expected
    aarch64-linux-gnu-gcc $flags -static -Iarm -o arm_gcc "$here/stream.c" arm/net.c
    check "$model, AArch64 gcc" qemu-aarch64 arm_gcc
    clang --target=aarch64-linux-gnu $flags -static -Iarm -o arm_clang "$here/stream.c" arm/net.c
    check "$model, AArch64 clang" qemu-aarch64 arm_clang
    if grep -qw avx2 /proc/cpuinfo; then
      cc -O2 -Ifused -o by_fused "$here/stream.c" fused/net.o
      check "$model, x86-64-v3" ./by_fused
    fi
  }
  rm -rf x86 fused arm
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
