#!/usr/bin/env bash
# check.sh BUILD SOURCE COMPILER: what a user gets from `cmake --install` and `cpack`, seen from outside. The example program is
# built against the installed tree by pkg-config and by find_package, after the tree was moved, and run on the demo.
set -euo pipefail
build=$1 source=$2 compiler=$3
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

export PKG_CONFIG_PATH
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name asof.pc)")
flags=$(pkg-config --cflags --libs asof)
# shellcheck disable=SC2086 # a list of words
$compiler -O1 "$source/examples/kernel_changes.cpp" $flags -o "$scratch/by_pkg_config"
"$scratch/by_pkg_config" "$demo/perf.data" "$demo/symfs" | cmp - "$scratch/want" || fail "built by pkg-config"
echo "pkg-config: built and run"

cmake -S "$source/tests/install/consumer" -B "$scratch/consumer" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_BUILD_TYPE=Release -DEXAMPLE="$source/examples/kernel_changes.cpp" >"$scratch/configure.log" || { cat "$scratch/configure.log"; fail configure; }
cmake --build "$scratch/consumer" >"$scratch/build.log" || { cat "$scratch/build.log"; fail build; }
"$scratch/consumer/kernel_changes" "$demo/perf.data" "$demo/symfs" | cmp - "$scratch/want" || fail "built by find_package"
echo "find_package: built and run"

if ! command -v dpkg-deb >/dev/null || ! command -v dpkg-shlibdeps >/dev/null || ! command -v file >/dev/null; then
  echo "SKIPPED: packages (dpkg-deb, dpkg-shlibdeps or file is not there)"
  exit 0
fi
(cd "$scratch" && cpack --config "$build/CPackConfig.cmake" -G DEB -B "$scratch/packages" >"$scratch/cpack.log" 2>&1) ||
  { cat "$scratch/cpack.log"; fail cpack; }
asof=$(echo "$scratch"/packages/asof_*.deb)
dev=$(echo "$scratch"/packages/libasof-dev_*.deb)
dpkg-deb -c "$asof" >"$scratch/asof.list"
dpkg-deb -c "$dev" >"$scratch/dev.list"
has() { grep -qE " \./$2\$" "$scratch/$1.list" || fail "$1 has no $2: $(cat "$scratch/$1.list")"; }
has asof usr/bin/asof
has asof usr/share/bash-completion/completions/asof
has asof usr/share/zsh/vendor-completions/_asof
has asof usr/share/fish/vendor_completions.d/asof.fish
has asof usr/share/doc/asof/copyright
if command -v scdoc >/dev/null; then
  for verb in "" $("$build/asof" completion bash | sed -n "s/^  local verbs='\(.*\)'/\1/p"); do
    has asof "usr/share/man/man1/asof${verb:+-$verb}.1"
  done
fi
has dev usr/include/asof/asof.h
has dev 'usr/lib/.*/?libasof_decoder.a'
has dev 'usr/lib/.*/?cmake/asof/asofConfig.cmake'
has dev 'usr/lib/.*/?pkgconfig/asof.pc'
grep -qE 'make_man|gtest|/tmp|\.cpp$' "$scratch/asof.list" && fail "the package has what it should not"
depends=$(dpkg-deb -f "$asof" Depends)
for library in libc6 libipt2 libcapstone4 libtbb12 libfmt9; do
  [[ $depends == *$library* ]] || fail "Depends lacks $library: $depends"
done
dpkg-deb -x "$asof" "$scratch/root"
"$scratch/root/usr/bin/asof" digest -q "$demo/perf.data" --symfs "$demo/symfs" | cmp - <("$build/asof" digest -q "$demo/perf.data" --symfs "$demo/symfs") ||
  fail "the packaged program"
echo "packages: $(basename "$asof") ($(stat -c %s "$asof") bytes), $(basename "$dev") ($(stat -c %s "$dev") bytes)"
