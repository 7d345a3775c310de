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

# What reads the sources alone. `source_checks part` runs each as a part, `source_checks plainly` stops at the first that fails.
source_checks() {
  "$1" layers python3 scripts/check_layers.py
  "$1" includes python3 scripts/check_includes.py
  "$1" layout format_sources --check
  "$1" ruff .venv/bin/ruff check --no-cache scripts python bench
}
plainly() {
  shift
  "$@"
}

run_tests() {
  local fast=0 sanitize=0 cross=0 aarch64=0 rivals=0
  again=0
  failed=()
  for argument in "$@"; do
    case "$argument" in
      --again) again=1 ;;
      --fast) fast=1 ;;
      --sanitize) sanitize=1 ;;
      --cross) cross=1 ;;
      --aarch64) aarch64=1 ;;
      --rivals) rivals=1 ;;
      *) fail "test takes --again, --fast, --sanitize, --cross, --aarch64 and --rivals. Received: $argument" ;;
    esac
  done
  setup_all
  tree=$(tree_hash)
  source_checks part
  part build build_preset release -DHOTLOOP_BUILD_PYTHON=ON "-DPython_EXECUTABLE=$PWD/.venv/bin/python"
  if [ ${#failed[@]} = 0 ]; then
    part tests ctest --preset release --no-tests=error -j "$(nproc)"
    part python check_python
    if [ "$fast" = 0 ]; then
      part docs python3 scripts/check_docs.py build/release
      part site check_site
      part package check_package
      part wheel check_wheel
    fi
    if [ "$cross" = 1 ]; then part cross check_cross; fi
    if [ "$aarch64" = 1 ]; then part aarch64 check_aarch64; fi
    if [ "$rivals" = 1 ]; then part rivals check_rivals; fi
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

# The Python package as it was built, on the packages of .venv.
check_python() {
  PYTHONPATH=$PWD/build/release/python HOTLOOP_CACHE=0 .venv/bin/python -m pytest -p no:cacheprovider
}

# The documentation as a site, in build/site/html. Warnings are errors.
check_site() {
  PYTHONPATH=$PWD/build/release/python HOTLOOP_CACHE=0 .venv/bin/python scripts/build_site.py build/site
}

run_site() {
  setup_packages build
  setup_venv
  build_preset release -DHOTLOOP_BUILD_PYTHON=ON "-DPython_EXECUTABLE=$PWD/.venv/bin/python" python_package
  check_site
}

# An outside project, built against an installed copy, and as far as a plan with the sources as a part of it: neither tests nor the command line are its own.
check_package() {
  local prefix=$PWD/build/package/prefix
  rm -rf build/package
  cmake --install build/release --prefix "$prefix"
  [ ! -e "$prefix/hotloop" ] || { echo "the Python package is the wheel's, not cmake --install's"; return 1; }
  cmake -S tests/package -B build/package/build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$prefix"
  ninja -C build/package/build
  ./build/package/build/outside
  cmake -S tests/package -B build/package/part -G Ninja -DCMAKE_BUILD_TYPE=Release -DHOTLOOP_SOURCE="$PWD"
  cp build/package/part/build.ninja build/package/part/count.ninja
  ninja -C build/package/part -f count.ninja -n >build/package/plan.txt
  grep -q 'Linking CXX executable outside' build/package/plan.txt
  if grep -E 'tests/|src/cli' build/package/plan.txt; then
    echo "a project with the library as a part builds more than that"
    return 1
  fi
}

# Rendered programs and exported steps by other compilers and on AArch64, under qemu-user.
check_cross() {
  setup_packages cross
  ninja -C build/release --quiet cross_record hotloop
  HOTLOOP_CACHE=0 tests/cross/programs.sh build/release/tests/cross_record
  HOTLOOP_CACHE=0 tests/cross/exports.sh build/release/hotloop
}

# The library and its unit tests built for AArch64 by a cross compiler, with Debian's libraries of that architecture; under qemu-user, some twenty times
# as slow, run those of what a processor decides about: generated code, rendered C, streams and exports.
check_aarch64() {
  setup_packages cross
  setup_packages aarch64
  local root=$PWD/.cache/aarch64 tools=$PWD/.cache/aarch64-tools libraries tool
  if [ ! -e "$root/usr/lib/llvm-19" ]; then
    libraries=$(packages_of build | grep -E -- '-dev$' | grep -v '^python' | paste -sd,)
    mmdebstrap --variant=extract --architectures=arm64 --include="libc6-dev,libstdc++-12-dev,$libraries" bookworm "$root.part"
    mv "$root.part" "$root"
  fi
  build_preset aarch64 unit_tests
  # The compiler that backend "c" and tests of exports call is one for AArch64.
  mkdir -p "$tools"
  for tool in gcc nm; do ln -sf "$(command -v aarch64-linux-gnu-$tool)" "$tools/$tool"; done
  ln -sf gcc "$tools/cc"
  HOTLOOP_CACHE=0 PATH=$tools:$PATH qemu-aarch64 -L "$root" build/aarch64/tests/unit_tests --gtest_brief=1 \
    --gtest_filter='*LlvmMaps*:*LlvmLoops*:*LlvmLaneMoves*:FarAngles*:Rem*:Pow*:ExportC*:Stream.*:Render*'
}

make_wheel() {  # FOLDER
  rm -rf "$1"
  # The compiler's name as the other presets have it, so that ccache knows the objects.
  CXX=/usr/bin/c++ .venv/bin/pip wheel . --no-build-isolation --no-deps -q --disable-pip-version-check -w "$1"
  ls -l "$1"
}

# The wheel, with LLVM inside, installed into an environment that has only NumPy beside it.
check_wheel() {
  local folder=$PWD/build/wheels numpy
  make_wheel "$folder"
  .venv/bin/python -m venv "$folder/venv"
  "$folder/venv/bin/pip" install -q --no-deps --disable-pip-version-check "$folder"/*.whl
  numpy=$(.venv/bin/python -c 'import numpy, pathlib; print(pathlib.Path(numpy.__file__).parent)')
  ln -s "$numpy" "${numpy/"$PWD/.venv"/"$folder/venv"}"
  ln -s "$numpy.libs" "${numpy/"$PWD/.venv"/"$folder/venv"}.libs"
  (cd "$folder" && HOTLOOP_CACHE=0 ./venv/bin/python ../../scripts/run_readme_python.py)
}

# The wheel beside the libraries that it meets: every order of import, random programs against JAX, models and tensors of PyTorch and Keras,
# tables, scikit-learn's own checks. Installs what is missing of them.
check_rivals() {
  local folder=$PWD/.cache/rivals wheels=$PWD/build/wheels_rivals name
  for name in torch jax keras; do
    [ -d ".cache/bench/$name" ] || .venv/bin/python bench/bench.py --install "$name"
  done
  [ -x "$folder/bin/pip" ] || .venv/bin/python -m venv "$folder"
  "$folder/bin/pip" install -q --disable-pip-version-check -r python/tests/rivals.txt
  printf '%s\n' "$PWD"/.cache/bench/{torch,jax,keras}/lib/python3*/site-packages >"$(echo "$folder"/lib/python3*/site-packages)/rivals.pth"
  make_wheel "$wheels"
  "$folder/bin/pip" install -q --no-deps --disable-pip-version-check --target "$wheels/packages" "$wheels"/*.whl
  PYTHONPATH=$wheels/packages HOTLOOP_CACHE=0 JAX_PLATFORMS=cpu TF_CPP_MIN_LOG_LEVEL=3 \
    "$folder/bin/python" -m pytest -p no:cacheprovider --ignore=python/tests/test_bench.py
}

# The thread sanitizer on what has threads: the team, the pools, concurrent calls.
check_tsan() {
  build_preset tsan threads_tests
  TSAN_OPTIONS=halt_on_error=1 ./build/tsan/tests/threads_tests --gtest_brief=1
}

# Address and undefined-behaviour sanitizers on the unit, thread, error and golden tests. Some ask for more memory than there is, which is to be
# refused as outside of the sanitizer.
check_asan() {
  local folder
  build_preset asan unit_tests threads_tests error_tests golden_tests cuda_tests
  for folder in unit threads error golden cuda; do
    ASAN_OPTIONS=allocator_may_return_null=1 "./build/asan/tests/${folder}_tests" --gtest_brief=1 || return
  done
}

# All C++ but two headers whose enumerations are tables laid out by hand.
cpp_sources() {
  find include src python tests fuzz bench examples \( -name '*.h' -o -name '*.cpp' \) \
    -not -path src/ir/scalar.h -not -path src/ir/op_def.h 2>/dev/null | LC_ALL=C sort || true
}

format_sources() {
  local differing
  if [ "${1:-}" = --check ]; then
    .venv/bin/clang-format --version >/dev/null || return
    # By its status, twenty files at a time, one by one where one of them differs: what parallel ones say would be woven together.
    differing=$(cpp_sources | xargs -P "$(nproc)" -n 20 sh -c '
      as_laid_out() { .venv/bin/clang-format --dry-run -Werror "$@" >/dev/null 2>&1; }
      as_laid_out "$@" || for file; do as_laid_out "$file" || echo "$file"; done' sh | LC_ALL=C sort)
    [ -z "$differing" ] && return
    printf 'these files are not laid out as ./dev fmt does it:\n%s\n' "$differing"
    return 1
  else
    cpp_sources | xargs .venv/bin/clang-format -i
    .venv/bin/ruff check --no-cache --fix-only -q scripts python bench
  fi
}

run_lint() {
  setup_venv
  source_checks plainly
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
    say "the command is build/release/hotloop; to have it on the PATH: README.md"
    return
  fi
  build_preset release hotloop_cli  # not the tests: a newcomer waits for this
  local cli=build/release/hotloop
  [ -x "$cli" ] || fail "the build has no command line yet: $cli"
  "$cli" train examples/demand.toml 2>&1 | tee .cache/dev/demo.log
  # A progress bar rewrites its line: what it rewrote is not worth repeating.
  sed 's/.*\r//' .cache/dev/demo.log | tail -n 40 | remember demo
  say "the command is $cli; to have it on the PATH: README.md"
}

# bench [TASK...] [OPTION...]: bench/bench.py; its own --help, --list and --install need no build.
run_bench() {
  setup_venv
  if [ "${1:-}" = --micro ]; then
    shift
    run_micro_bench "$@"
    return
  fi
  case " $* " in
    *" --help "* | *" -h "* | *" --list "* | *" --install"* | *" --merge "*) ;;
    *)
      setup_packages build
      build_preset release -DHOTLOOP_BUILD_BENCH=ON -DHOTLOOP_BUILD_PYTHON=ON "-DPython_EXECUTABLE=$PWD/.venv/bin/python" \
        bench/all python_package
      ;;
  esac
  exec .venv/bin/python bench/bench.py "$@"
}

# One micro-benchmark, or all of them.
run_micro_bench() {
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
      ".cache/fuzz/$name" "fuzz/corpus/${name%_fuzz}"
  done
}

run_docs() {
  setup_packages build
  build_preset release
  python3 scripts/check_docs.py build/release
}
