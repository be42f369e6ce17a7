#!/usr/bin/env bash
# deps | build | demo | check | check-all | bench | lint: everything between a clone and a result. Packages that are missing are installed
# (Debian; as root or through sudo), and what is done is said. Nothing asks a question.
set -euo pipefail
cd "$(dirname "$0")/.."

needed=(g++ cmake ninja-build pkg-config libipt-dev libopencsd-dev libcapstone-dev libelf-dev libdw-dev libtbb-dev
        libiberty-dev libgtest-dev libbenchmark-dev libzydis-dev libzstd-dev libarchive-dev libfmt-dev libcli11-dev robin-map-dev rapidjson-dev
        nlohmann-json3-dev libprotozero-dev libseccomp-dev libsqlite3-dev nettle-dev libcsv-dev zlib1g-dev zstd)
# Manual pages are not made without it.
optional=(scdoc)
# The Python module is not made without them; NumPy is for its tests.
for_python=(pybind11-dev python3-dev python3-numpy)
# Only for tests: comparisons with perf, packages, timelines in real browsers, profiles for LLVM's tools, coverage,
# debuginfod and libtraceevent (which are loaded where they are installed), the matrix of boards (jq). They are skipped without.
for_tests=(linux-perf dpkg-dev file lintian chromium firefox-esr shellcheck sqlite3 llvm-19 bolt-19 autofdo lcov libdebuginfod1 libtraceevent1 jq)

# Some wait for other programs; some take hundreds of megabytes.
tests_at_once=$(($(nproc) < 8 ? $(nproc) + 1 : 9))

say() { printf '== %s\n' "$*"; }

missing() { # prints those of its arguments that are not installed
  local package
  for package; do
    dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || printf '%s ' "$package"
  done
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

install_packages() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" </dev/null
}

deps() {
  if ! command -v dpkg-query >/dev/null; then
    say "this is no Debian; these packages, or their like, must be there: ${needed[*]}"
    return 0
  fi
  local list extra
  list=$(missing "${needed[@]}")
  extra=$(missing "${optional[@]}" "${for_python[@]}" "$@")
  [ -n "$list$extra" ] || return 0
  if [ "$(id -u)" != 0 ] && ! sudo -n true 2>/dev/null; then
    say "packages are missing, and installing them needs root. Run:"
    printf '   sudo apt-get install %s%s\n' "$list" "$extra"
    [ -z "$list" ] || exit 1
    say "going on without $extra"
    return 0
  fi
  say "installing: $list$extra"
  as_root apt-get update -q </dev/null || [ -z "$list" ]
  # shellcheck disable=SC2086 # lists of words
  [ -z "$list" ] || install_packages $list
  # shellcheck disable=SC2086
  [ -z "$extra" ] || install_packages $extra || say "going on without $extra(tests that need it are skipped)"
}

# What only tests use: the browser and what drives it, readers of Parquet files.
test_deps() {
  command -v node >/dev/null || for_tests+=(nodejs)
  command -v npm >/dev/null || for_tests+=(npm)
  deps "${for_tests[@]}"
  command -v npm >/dev/null || return 0
  local folder
  for folder in tests/browser tests/lake; do
    cmp -s $folder/package-lock.json $folder/node_modules/.installed && continue
    say "npm ci in $folder"
    if npm ci --prefix $folder --ignore-scripts --no-audit --no-fund </dev/null; then
      cp $folder/package-lock.json $folder/node_modules/.installed
    else
      say "going on without (tests that need it are skipped)"
    fi
  done
}

build() { # targets; none: everything
  deps
  say "building build/release"
  cmake --preset release >build/release.configure.log 2>&1 || { cat build/release.configure.log; exit 1; }
  cmake --build build/release ${1:+--target "$@"}
}

# Captures too large for this repository, beside it on machines that have them; tests that use them are skipped without.
captures() {
  if [ -x ../shared/unpack ]; then
    say "restoring captures below build/shared"
    ../shared/unpack build/shared
  else
    say "no ../shared: tests on large captures will be skipped"
  fi
}

check() {
  captures
  test_deps
  build
  say "testing"
  ctest --test-dir build/release -j "$tests_at_once" --output-on-failure
}

demo() {
  build asof
  exec scripts/demo.sh build/release/asof
}

bench() {
  captures
  deps
  say "building build/bench"
  cmake --preset release -B build/bench -DASOF_BENCH=ON -DASOF_TESTS=OFF
  cmake --build build/bench
  tests/bench/run.sh build/bench
}

# Style and defects, as the tests do not see them. clang-tidy 14, Debian's default, does not parse C++23.
lint() {
  local list
  list=$(missing clang-format clang-tidy-19)
  # shellcheck disable=SC2086
  [ -z "$list" ] || { say "installing: $list"; install_packages $list; }
  deps
  say "clang-format"
  git ls-files '*.h' '*.cpp' | xargs clang-format --dry-run --Werror
  say "clang-tidy-19"
  # A folder's files as one: what they include is read once, which takes a fifth of the time.
  cmake --preset release -B build/lint >/dev/null
  sed -n 's/^ *"file": "\([^"]*\)",*$/\1/p' build/lint/compile_commands.json | grep -v -e /tests/ -e /html_page.cpp | sort -u |
    xargs -P "$(nproc)" -n 1 clang-tidy-19 -p build/lint --quiet --checks=-bugprone-suspicious-include \
      --header-filter='(textstore|arch|decoder|tools|api|include)/.*\.(h|cpp)$'
}

# The suite under another preset, with the large captures where they are restored.
check_preset() {
  say "building build/$1"
  cmake --preset "$1" >"build/$1.configure.log" 2>&1 || { cat "build/$1.configure.log"; exit 1; }
  cmake --build "build/$1"
  say "testing build/$1"
  ctest --preset "$1" -j "$tests_at_once"
}

clang_deps() {
  local list
  list=$(missing clang-19 libclang-rt-19-dev)
  # shellcheck disable=SC2086
  [ -z "$list" ] || { say "installing: $list"; install_packages $list; }
}

# Everything that `check` does, and what takes longer: lint, each file by itself, clang, sanitizers, fuzzers. Takes hours.
check_all() {
  clang_deps
  check
  lint
  say "building build/dev"
  cmake --preset dev >build/dev.configure.log 2>&1 || { cat build/dev.configure.log; exit 1; }
  cmake --build build/dev
  local preset
  for preset in clang asan tsan; do check_preset $preset; done
  scripts/fuzz.sh smoke
  say "all of it passed"
}

mkdir -p build
case "${1:-}" in
  build) build asof ;;
  deps|test_deps|clang_deps|demo|check|bench|lint) "$1" ;;
  check-all) check_all ;;
  *) echo "usage: scripts/dev.sh deps|build|demo|check|check-all|bench|lint" >&2; exit 1 ;;
esac
