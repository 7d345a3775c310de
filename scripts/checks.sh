# The parts of ./dev test, demo, bench, fmt, lint, fuzz and docs. Sourced by ./dev.

# part NAME FUNCTION [ARGUMENT...]: runs it unless it passed on this very tree; remembers it if it passes.
part() {
  local name=$1 start=$SECONDS status
  shift
  if remembered "$name"; then return 0; fi
  # A subshell outside any condition: inside one, bash would ignore -e and only the last command would count.
  set +e
  (set -e; "$@") >".cache/dev/$name.log" 2>&1
  status=$?
  set -e
  if [ "$status" = 0 ]; then
    printf '[dev] %-10s passed in %d s\n' "$name" $((SECONDS - start))
    grep -E '% tests passed|^[0-9]+ passed, [0-9]+ failed' ".cache/dev/$name.log" | tee ".cache/dev/$name.closing" || true
    remember "$name" <".cache/dev/$name.closing"
  else
    tail -n 40 ".cache/dev/$name.log"
    printf '[dev] %-10s FAILED after %d s; the whole output is in .cache/dev/%s.log\n' "$name" $((SECONDS - start)) "$name"
    failed+=("$name")
  fi
}

run_tests() {
  local fast=0 sanitize=0
  again=0
  failed=()
  for argument in "$@"; do
    case "$argument" in
      --again) again=1 ;;
      --fast) fast=1 ;;
      --sanitize) sanitize=1 ;;
      *) fail "test takes --again, --fast and --sanitize. Received: $argument" ;;
    esac
  done
  setup_all
  tree=$(tree_hash)
  part layers python3 scripts/check_layers.py
  part layout format_sources --check
  part ruff .venv/bin/ruff check --no-cache scripts
  part build build_preset release
  if [ ${#failed[@]} = 0 ]; then
    part tests ctest --preset release --no-tests=error -j "$(nproc)"
    if [ "$fast" = 0 ]; then
      part docs python3 scripts/check_docs.py build/release
      part package check_package
    fi
    if [ "$sanitize" = 1 ]; then
      part tsan check_tsan
      part asan check_asan
    fi
  fi
  if [ ${#failed[@]} != 0 ]; then
    say "FAILED: ${failed[*]}"
    exit 1
  fi
  say "all parts passed"
}

# An outside project, built against an installed copy.
check_package() {
  local prefix=$PWD/build/package/prefix
  rm -rf build/package
  cmake --install build/release --prefix "$prefix"
  cmake -S tests/package -B build/package/build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$prefix"
  ninja -C build/package/build
  ./build/package/build/outside
}

# The thread sanitizer on what has threads: the team, the pools, concurrent calls.
check_tsan() {
  build_preset tsan unit_tests
  TSAN_OPTIONS=halt_on_error=1 ./build/tsan/tests/unit_tests \
    --gtest_filter='ThreadTeam.*:MemoryPool.*:ObjectPool.*:KernelEngine.*:KernelHistory.*:Jit.*'
}

# Address and undefined-behaviour sanitizers on the unit, error and golden tests.
check_asan() {
  local folder
  build_preset asan
  for folder in unit error golden; do
    if [ -x "build/asan/tests/${folder}_tests" ]; then "./build/asan/tests/${folder}_tests" --gtest_brief=1; fi
  done
}

# All C++ but two headers whose enumerations are tables laid out by hand.
cpp_sources() {
  find include src tests fuzz bench examples \( -name '*.h' -o -name '*.cpp' \) \
    -not -path src/ir/scalar.h -not -path src/ir/op_def.h 2>/dev/null | LC_ALL=C sort || true
}

format_sources() {
  local differing
  if [ "${1:-}" = --check ]; then
    differing=$(cpp_sources | xargs -P "$(nproc)" -n 20 clang-format --dry-run 2>&1 |
      sed -n 's/^\([^ :]*\):.*warning: code should be.*/\1/p' | sort | uniq -c || true)
    [ -z "$differing" ] && return
    printf 'these files are not laid out as ./dev fmt does it (places, file):\n%s\n' "$differing"
    return 1
  else
    cpp_sources | xargs clang-format -i
    [ ! -x .venv/bin/ruff ] || .venv/bin/ruff check --no-cache --fix-only -q scripts
  fi
}

run_lint() {
  setup_venv
  python3 scripts/check_layers.py
  format_sources --check
  .venv/bin/ruff check --no-cache scripts
  build_preset dev
  say "lint passed"
}

run_demo() {
  again=0
  [ "${1:-}" != --again ] || again=1
  setup_all
  tree=$(tree_hash)
  if remembered demo; then
    say "(./dev demo --again trains it again)"
    return
  fi
  build_preset release
  local cli=build/release/hotloop
  [ -x "$cli" ] || fail "the build has no command line yet: $cli"
  "$cli" train examples/demand.toml 2>&1 | tee .cache/dev/demo.log
  # A progress bar rewrites its line: what it rewrote is not worth repeating.
  sed 's/.*\r//' .cache/dev/demo.log | tail -n 40 | remember demo
}

# bench [NAME [ARGUMENT...]]: one micro-benchmark, or all of them.
run_bench() {
  local program
  setup_packages build
  build_preset release -DHOTLOOP_BUILD_BENCH=ON
  if [ $# -gt 0 ]; then
    program=build/release/bench/micro/$1
    [ -x "$program" ] || fail "the benchmark must exist. Received: $1. Try: $(ls bench/micro | sed -n 's/\.cpp$//p' | xargs)"
    shift
    exec "$program" "$@"
  fi
  grep -m 1 'model name' /proc/cpuinfo
  for program in build/release/bench/micro/*_bench; do
    say "bench: $(basename "$program")"
    "$program"
  done
}

run_fuzz() {
  local seconds=${1:-60} target name
  setup_packages build
  setup_packages fuzz
  build_preset fuzz
  for target in build/fuzz/fuzz/*_fuzz; do
    name=$(basename "$target")
    mkdir -p ".cache/fuzz/$name"
    say "fuzz: $name for $seconds s"
    "$target" -max_total_time="$seconds" -print_final_stats=1 -artifact_prefix=".cache/fuzz/$name-" \
      ".cache/fuzz/$name"
  done
}

run_docs() {
  setup_packages build
  build_preset release
  python3 scripts/check_docs.py build/release
}
