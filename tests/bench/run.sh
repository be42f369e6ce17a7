#!/usr/bin/env bash
# run.sh BUILD: runs every benchmark of a build directory and says on what machine. Compare rows of one run only.
set -euo pipefail
build=${1:?usage: run.sh BUILD}
sed -n 's/^model name\s*: /machine: /p' /proc/cpuinfo | sort | uniq -c | sed 's/^ *\([0-9]*\) /\1 x /'
for bench in "$build"/tests/bench/*_bench; do
  echo "== $(basename "$bench")"
  "$bench" --benchmark_min_time=0.5
done
shared=$(dirname "$build")/shared/captures
for name in pt-work-1round pt-cc1; do
  [ ! -e "$shared/$name/bundle.json" ] || "$build/tests/bench/peers" --rounds 3 "$shared/$name/bundle.json"
done
