# Building, and remembering what passed. Sourced by ./dev.

again=0  # 1: run parts that passed on this very tree, too
tree=    # its hash, set by the command

# The sources as they are: tracked or not, all but what git ignores (git itself may be absent), and the tools and the
# processor that results depend on.
tree_hash() {
  {
    find . \( -path ./.git -o -path './build*' -o -path ./.venv -o -path ./.cache -o -path ./runs -o -path ./data \
      -o -name __pycache__ -o -name '*.pyc' \) -prune -o -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
    g++ --version | head -n 1
    cmake --version | head -n 1
    dpkg-query -W llvm-19-dev 2>/dev/null || true
    grep -m 2 -E '^(model name|flags)' /proc/cpuinfo || true
  } | sha256sum | cut -d ' ' -f 1
}

# With ccache, a clone in another folder finds what this one compiled.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1

build_preset() {  # PRESET [-DOPTION=VALUE...] [TARGET...]
  local preset=$1 options=() targets=() argument
  shift
  for argument in "$@"; do
    if [[ $argument == -D* ]]; then options+=("$argument"); else targets+=("$argument"); fi
  done
  cmake --preset "$preset" "${options[@]}" >".cache/dev/configure-$preset.log" 2>&1 ||
    { tail -n 20 ".cache/dev/configure-$preset.log" >&2; fail "cmake --preset $preset failed"; }
  local steps cores
  # By a copy: of build.ninja itself a dry run says that it would be made again, and no more.
  cp "build/$preset/build.ninja" "build/$preset/count.ninja"
  steps=$(ninja -C "build/$preset" -f count.ninja -n "${targets[@]}" | sed -nE '$s/^\[[0-9]+\/([0-9]+)\].*/\1/p')
  cores=$(nproc)
  # 2.5 s of a core each, without a compiler cache.
  if [ "${steps:-0}" -gt 40 ]; then
    say "build: $preset, $steps steps; at most $((steps / 24 / cores + 1)) minutes or so on $cores cores"
  else
    say "build: $preset"
  fi
  # One line that counts, where there is a terminal.
  local quiet=(--quiet)
  [ -t 1 ] && quiet=()
  ninja -C "build/$preset" "${quiet[@]}" "${targets[@]}"
}

# remembered PART: whether PART passed on exactly this tree; then what it printed at its end is printed again.
remembered() {
  [ "$again" = 0 ] && [ "$(head -n 1 ".cache/dev/$1.passed" 2>/dev/null)" = "$tree" ] || return 1
  printf '[dev] %-10s nothing changed since it passed on %s\n' "$1" "$(sed -n 2p ".cache/dev/$1.passed")"
  tail -n +3 ".cache/dev/$1.passed"
}

# remember PART <closing-lines
remember() {
  { printf '%s\n%s\n' "$tree" "$(date -u '+%Y-%m-%d %H:%M UTC')"; cat; } >".cache/dev/$1.passed"
}
