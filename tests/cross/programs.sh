#!/usr/bin/env bash
# Programs rendered as plain C give the same bits on AArch64, under qemu-user, as on this machine.
#
# usage: programs.sh RECORD_PROGRAM      needs aarch64-linux-gnu-gcc and qemu-aarch64
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$1" "$folder" >"$folder/log" || { cat "$folder/log" >&2; exit 1; }
passed=0 failed=0
for source in "$folder"/*.c; do
  # As backend "c" compiles on the machine itself; -static so that the emulator needs no libraries.
  aarch64-linux-gnu-gcc -std=gnu11 -O3 -w -ffp-contract=off -fno-math-errno \
    -static "$here/replay.c" "$source" -o "${source%.c}" -lm
  if result=$(qemu-aarch64 "${source%.c}" "${source%.c}.bin"); then passed=$((passed + 1)); else failed=$((failed + 1)); fi
  echo "$(basename "${source%.c}"): $result"
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
