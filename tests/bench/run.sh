#!/usr/bin/env bash
# run.sh BUILD: runs every benchmark of a build directory; peers prints a description of the machine. Compare
# rows of one run only.
# libipt is linked; perf and OpenCSD take part where they are installed.
set -euo pipefail
build=${1:?usage: run.sh BUILD}
for bench in "$build"/tests/bench/*_bench; do
  echo "== $(basename "$bench")"
  "$bench" --benchmark_min_time=0.5
done
shared=$(dirname "$build")/shared/captures
for name in pt-work-1round pt-cc1; do
  [ ! -e "$shared/$name/bundle.json" ] || "$build/tests/bench/peers" --rounds 3 --asof "$build/asof" "$shared/$name/bundle.json"
done
# The same code traced again: with return compression, and without.
again=$(mktemp -d)
trap 'rm -rf "$again"' EXIT
for name in pt-work-1round pt-cc1; do
  [ -e "$shared/$name/bundle.json" ] || continue
  "$build/tests/peers/reencode_bundle" "$shared/$name/bundle.json" "$again/$name-with" --ret-compression
  "$build/tests/peers/reencode_bundle" "$shared/$name/bundle.json" "$again/$name-without"
  "$build/tests/bench/peers" --alone --rounds 5 "$again/$name-with/bundle.json" "$again/$name-without/bundle.json"
done
[ ! -e "$shared/pt-cc1/bundle.json" ] || "$build/tests/bench/live_text" --rounds 5 "$shared/pt-cc1/bundle.json"
corpus=$(dirname "$build")/shared/corpus
# CoreSight: simulated boards with a whole kernel, a program on silicon, and that program again as a longer
# trace.
arm=$build/tests/bench/arm_peers
if [ -x "$arm" ]; then
  for capture in "$shared"/arm64-board-tiny/poke.data "$shared"/arm64-board-helper/nopoke.data "$corpus"/ricsec-branches/trace1; do
    [ ! -e "$capture" ] || "$arm" --rounds 5 "$capture"
  done
  [ ! -e "$corpus/ricsec-branches/trace1" ] || "$arm" --rounds 5 --repeat 100 "$corpus/ricsec-branches/trace1"
fi
