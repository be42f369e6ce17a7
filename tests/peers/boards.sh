#!/usr/bin/env bash
# boards.sh BUILD: asof and perf on the board captures, both compared with what was executed, as rows of
# docs/validation.md. The captures must be in BUILD/../shared/captures (scripts/dev.sh check puts them there);
# captures that tools/board left in BUILD/../board are compared, too.
# The last captures are traced again with no time except that of sync points; perf does not finish there, so
# it is stopped after LINES instructions (default: 40 million).
set -euo pipefail
build=$(realpath "${1:?usage: boards.sh BUILD}")
lines=${LINES:-40000000}
captures=$(dirname "$build")/shared/captures
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

compare() { # title capture truth
  printf '== %s\n' "$1"
  local symfs=()
  [ ! -e "$2/symfs" ] || symfs=(--symfs "$2/symfs")
  printf -- '-- asof\n'
  "$build/asof" validate "$2" "${symfs[@]}" --truth "$3" --cross-check 0 | grep -E '^cpu|by confidence' || true
  printf -- '-- perf\n'
  { perf script -i "$2" "${symfs[@]}" --ns --itrace=i0nse -F cpu,time,ip,insn 2>/dev/null || true; } |
    head -n "$lines" | "$build/tests/peers/perf_compare" "$3" | grep -E '^cpu|^[0-9]'
}

compare_branches() { # title capture truth
  printf '== %s\n-- asof\n' "$1"
  "$build/asof" validate "$2" --truth "$3" --cross-check 0 | grep -E '^cpu|by confidence' || true
  printf -- '-- perf\n'
  { perf script -i "$2" --ns --itrace=b -F hw:cpu,time,ip,addr -F trace:cpu,time 2>/dev/null || true; } |
    "$build/tests/peers/perf_compare" --branches "$3" | grep -E '^cpu|^[0-9]'
}

perf version
for board in "$captures"/x86-board-* "$(dirname "$build")"/board/x86-*; do
  [ -d "$board/truth" ] || continue
  compare "$(basename "$board")" "$board/perf.data" "$board/truth"
done
compare_branches arm64-board-tiny "$captures/arm64-board-tiny/poke.data" "$captures/arm64-board-tiny/truth"
compare_branches arm64-board-tiny/short-poke "$captures/arm64-board-tiny/short-poke.data" "$captures/arm64-board-tiny/truth/short"
compare_branches arm64-board-helper "$captures/arm64-board-helper/poke.data" "$captures/arm64-board-helper/truth"
for board in "$(dirname "$build")"/board/arm64-*; do
  [ ! -d "$board/truth" ] || compare_branches "$(basename "$board")" "$board/perf.data" "$board/truth"
done
storm=$captures/x86-board-storm
for bytes in 4096 16384 131072; do
  "$build/tests/peers/reencode" "$storm" "$work/$bytes" "$bytes"
  compare "x86-board-storm, a sync point every $bytes bytes and no other time" "$work/$bytes" "$storm/truth"
done
