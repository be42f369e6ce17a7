#!/usr/bin/env bash
# exports.sh LIBRARY LIST: libasof.so must export exactly the C functions of LIST, and besides them only the
# C++ interface in namespace asof::v0. A change of LIST is a change of the binary interface.
set -euo pipefail
library=$1 list=$2
fail() { echo "FAILED: $*" >&2; exit 1; }

symbols=$(nm -D --defined-only --format=posix "$library" | awk '$2 != "A" {print $1}' | sed 's/@.*//')
[ -n "$symbols" ] || fail "no symbols in $library"
diff <(grep '^asof_' <<<"$symbols" | sort) <(sort "$list") || fail "C functions differ from $list (<: exported)"
others=$(grep -v '^asof_' <<<"$symbols" | c++filt | grep -vE '^((typeinfo|typeinfo name|vtable) for )?asof::v0::' || true)
[ -z "$others" ] || fail "exported, but no part of the interface: $others"
cpp=$(grep -c '^_Z' <<<"$symbols")
[ "$cpp" -gt 30 ] || fail "only $cpp symbols of the C++ interface"
soname=$(readelf -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
[ "$soname" = libasof.so.0 ] || fail "soname is $soname"
echo "$(wc -l <"$list") C functions, $cpp C++ symbols, $soname"
