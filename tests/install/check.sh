#!/usr/bin/env bash
# check.sh BUILD SOURCE COMPILER [PYTHON]: what a user gets from `cmake --install` and `cpack`, seen from outside. The example
# is built against the installed tree by pkg-config and by find_package, with the shared and the static library, after the
# tree was moved, and run on the demo; so is the C test, and the Python module is used.
set -euo pipefail
build=$1 source=$2 compiler=$3 python=${4:-}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }

cmake --install "$build" --prefix "$scratch/first" >"$scratch/install.log"
mv "$scratch/first" "$scratch/moved"
prefix=$scratch/moved
[ "$("$prefix/bin/asof" version | head -n 1)" = "$("$build/asof" version | head -n 1)" ] || fail "the installed program"

demo=$source/tests/data/demo
"$build/examples/kernel_changes" "$demo/perf.data" "$demo/symfs" >"$scratch/want"
[ "$(grep -c '^    old' "$scratch/want")" = 10 ] || fail "the demo has 10 changes: $(cat "$scratch/want")"
grep -q 'cpu 1 ran the old until .* ran the new from ' "$scratch/want" || fail "nothing ran changed text"

library=$(dirname "$(find "$prefix" -name libasof.so)")
if grep -q '^ASOF_HARDEN:BOOL=ON' "$build/CMakeCache.txt"; then
  for file in "$prefix/bin/asof" "$library/libasof.so"; do
    # Kept whole: grep -q ends before readelf does, which pipefail takes for a failure.
    headers=$(readelf -ldW "$file")
    symbols=$(readelf -sW "$file")
    grep -q GNU_RELRO <<<"$headers" || fail "$file: no RELRO"
    grep -q BIND_NOW <<<"$headers" || fail "$file: bound lazily"
    grep -q __stack_chk_fail <<<"$symbols" || fail "$file: no stack protector"
    grep -q '__[a-z]*_chk@' <<<"$symbols" || fail "$file: no _FORTIFY_SOURCE"
    ! grep -q 'GNU_STACK.*RWE' <<<"$headers" || fail "$file: an executable stack"
  done
  grep -q 'Position-Independent Executable' <<<"$(readelf -hW "$prefix/bin/asof")" || fail "the program has a fixed address"
fi
sbom=$(find "$prefix" -name asof.cdx.json)
if [ -n "$sbom" ]; then
  for name in libipt2 libopencsd1 libzstd1 libiberty-dev; do grep -q "\"name\": \"$name\"" "$sbom" || fail "the SBOM lacks $name"; done
fi
tests=$source/tests/api
"$tests/exports.sh" "$library/libasof.so" "$tests/c_symbols.txt" || fail "exported symbols"
internal=$(grep -rlE '#include "(textstore|arch|decoder|api|tools)/' "$prefix/include" || true)
[ -z "$internal" ] || fail "internal headers are needed by $internal"
[ "$(find "$prefix/include" -type f ! -path "$prefix/include/asof/*.h")" = "" ] || fail "headers outside of include/asof"

# run PROGRAM: on the demo, with the same output as the one that was built in the tree.
run() { LD_LIBRARY_PATH=$library "$1" "$demo/perf.data" "$demo/symfs" | cmp - "$scratch/want" || fail "$1"; }
# needs PROGRAM yes|no: whether it needs libasof.so.0.
needs() { [ "$(readelf -d "$1" | grep -q 'NEEDED.*libasof.so.0' && echo yes || echo no)" = "$2" ] || fail "$1 and libasof.so.0"; }

export PKG_CONFIG_PATH=$library/pkgconfig
for linkage in asof:yes asof-static:no; do
  flags=$(pkg-config --cflags --libs "${linkage%:*}")
  program=$scratch/${linkage%:*}
  # shellcheck disable=SC2086 # a list of words
  $compiler -std=c++23 -O1 "$source/examples/kernel_changes.cpp" $flags -o "$program"
  run "$program"
  needs "$program" "${linkage#*:}"
done
echo "pkg-config: built and run, shared and static"
# shellcheck disable=SC2046
${CC:-cc} -std=c11 -Wall -Wextra -pedantic -Werror "$tests/c_api_test.c" $(pkg-config --cflags --libs asof) -o "$scratch/c_api"
LD_LIBRARY_PATH=$library "$scratch/c_api" "$demo/perf.data" "$demo/symfs" || fail "the C interface"
echo "C: built and run"

cmake -S "$source/tests/install/consumer" -B "$scratch/consumer" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_BUILD_TYPE=Release -DEXAMPLE="$source/examples/kernel_changes.cpp" >"$scratch/configure.log" || { cat "$scratch/configure.log"; fail configure; }
cmake --build "$scratch/consumer" >"$scratch/build.log" || { cat "$scratch/build.log"; fail build; }
run "$scratch/consumer/with_shared"
run "$scratch/consumer/with_static"
needs "$scratch/consumer/with_shared" yes
needs "$scratch/consumer/with_static" no
echo "find_package: built and run, shared and static"

if [ -n "$python" ]; then
  package=$(dirname "$(dirname "$(find "$prefix" -name '_asof*.so')")")
  count='import asof, sys; print(sum(b.count for b in asof.open(sys.argv[1], symfs=sys.argv[2]).blocks()))'
  [ "$(LD_LIBRARY_PATH=$library PYTHONPATH=$package "$python" -B -c "$count" "$demo/perf.data" "$demo/symfs")" = 61625 ] || fail "the Python module"
  echo "Python: run"
fi

if ! command -v dpkg-deb >/dev/null || ! command -v dpkg-shlibdeps >/dev/null || ! command -v file >/dev/null; then
  echo "SKIPPED: packages (dpkg-deb, dpkg-shlibdeps or file is not there)"
  exit 0
fi
# What is in the packages is of interest here, not their size: xz at its default level takes most of this test's time.
export DPKG_DEB_COMPRESSOR_LEVEL=0
(cd "$scratch" && cpack --config "$build/CPackConfig.cmake" -G DEB -B "$scratch/packages" >"$scratch/cpack.log" 2>&1) ||
  { cat "$scratch/cpack.log"; fail cpack; }
if command -v lintian >/dev/null; then
  said=$(lintian --allow-root "$scratch"/packages/*.deb "$scratch"/packages/*.ddeb)
  [ -z "$said" ] || fail "lintian: $said"
fi
asof=$(echo "$scratch"/packages/asof_*.deb)
dev=$(echo "$scratch"/packages/libasof-dev_*.deb)
shared=$(echo "$scratch"/packages/libasof0_*.deb)
dpkg-deb -c "$asof" >"$scratch/asof.list"
dpkg-deb -c "$dev" >"$scratch/dev.list"
dpkg-deb -c "$shared" >"$scratch/shared.list"
has() { grep -qE " \./$2( -> .*)?\$" "$scratch/$1.list" || fail "$1 has no $2: $(cat "$scratch/$1.list")"; }
has asof usr/bin/asof
has asof usr/share/bash-completion/completions/asof
has asof usr/share/zsh/vendor-completions/_asof
has asof usr/share/fish/vendor_completions.d/asof.fish
has asof usr/share/doc/asof/copyright
has asof usr/share/doc/asof/docs/usage.md
for file in record-pt record-cs lib.sh toggle watch restore; do has asof "usr/libexec/asof/$file"; done
if command -v scdoc >/dev/null; then
  for verb in "" $("$build/asof" completion bash | sed -n "s/^  local verbs='\(.*\)'/\1/p"); do
    has asof "usr/share/man/man1/asof${verb:+-$verb}.1.gz"
  done
fi
has dev usr/include/asof/asof.h
has dev usr/include/asof/asof_c.h
has dev 'usr/lib/.*/?libasof.a'
has dev 'usr/lib/.*/?libasof.so'
has shared 'usr/lib/[^/]*-linux-gnu/libasof.so.0'
has shared 'usr/lib/.*/?libasof.so.0.2.0'
has dev 'usr/lib/.*/?cmake/asof/asofConfig.cmake'
has dev 'usr/lib/.*/?pkgconfig/asof.pc'
has dev 'usr/lib/.*/?pkgconfig/asof-static.pc'
if [ -n "$python" ]; then
  module=$(echo "$scratch"/packages/python3-asof_*.deb)
  dpkg-deb -c "$module" >"$scratch/module.list"
  has module usr/lib/python3/dist-packages/asof/__init__.py
  has module usr/lib/python3/dist-packages/asof/py.typed
  has module 'usr/lib/python3/dist-packages/asof/_asof.*\.so'
  [[ $(dpkg-deb -f "$module" Depends) == *libasof0* ]] || fail "Depends of the module"
fi
grep -qE 'make_man|gtest|/tmp|\.cpp$' "$scratch/asof.list" && fail "the package has what it should not"
[[ $(dpkg-deb -f "$dev" Depends) == *libasof0* ]] || fail "Depends of libasof-dev"
[[ $(dpkg-deb -f "$shared" Depends) == *libipt2* ]] || fail "Depends of libasof0"
depends=$(dpkg-deb -f "$asof" Depends)
for library in libc6 libipt2 libcapstone4 libtbb12 libfmt9; do
  [[ $depends == *$library* ]] || fail "Depends lacks $library: $depends"
done
dpkg-deb -x "$asof" "$scratch/root"
"$scratch/root/usr/bin/asof" digest -q "$demo/perf.data" --symfs "$demo/symfs" | cmp - <("$build/asof" digest -q "$demo/perf.data" --symfs "$demo/symfs") ||
  fail "the packaged program"
for name in asof libasof0 python3-asof; do
  [ "$name" = python3-asof ] && [ -z "$python" ] && continue
  symbols=$(dpkg-deb -c "$scratch/packages/$name-dbgsym_"*.ddeb)
  grep -q '\.debug$' <<<"$symbols" || fail "$name has no package of debug symbols"
done
for package in "$scratch"/packages/*.deb; do
  echo "package: $(basename "$package") ($(stat -c %s "$package") bytes)"
done
