#!/usr/bin/env bash
# run.sh BUILD: runs every benchmark of a build directory; peers says on what machine. Compare rows of one run only.
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
[ ! -e "$shared/pt-cc1/bundle.json" ] || "$build/tests/bench/live_text" --rounds 5 "$shared/pt-cc1/bundle.json"
corpus=$(dirname "$build")/shared/corpus
# CoreSight: the captures with the most trace, one of a real core and one of a simulated board.
if [ -x "$build/tests/bench/arm_peers" ]; then
  for capture in "$corpus"/ocsd-juno_r1_1 "$shared"/arm64-board-helper/poke.data; do
    [ ! -e "$capture" ] || "$build/tests/bench/arm_peers" --rounds 5 "$capture"
  done
fi
