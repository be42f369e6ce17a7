#!/usr/bin/env bash
# run [SECONDS [TARGET...]] | smoke | minimize [TARGET...] | coverage [RUNS [TARGET...]]: the fuzzers in tests/fuzz, built by preset `fuzz`.
#   run       each for so many seconds (60), from its corpus; findings are in build/fuzz/findings
#   smoke     each over 20,000 inputs, the same ones every time
#   minimize  keeps of what was found so far the fewest and smallest inputs that reach the same code, as the corpus
#   coverage  which code random changes of the corpora reach, by folder: so many (1,000) of each target
set -euo pipefail
cd "$(dirname "$0")/.."

seeds=build/fuzz/seeds corpora=build/fuzz/corpora findings=build/fuzz/findings reached=build/fuzz/reached
most_corpus=260000 most_captures=800000 # bytes, packed
most_input=131072
say() { printf '== %s\n' "$*"; }

build() {
  say "building build/fuzz"
  mkdir -p build
  cmake --preset fuzz >build/fuzz.configure.log 2>&1 || { cat build/fuzz.configure.log; exit 1; }
  cmake --build build/fuzz
}

# `name` and the bytes of a file, as fuzz::split_files() reads them.
member() { printf '\n=== %s\n' "$1"; cat "$2"; }

# Captures that the tests of the decoder write are seeds, too, where these tests have been built.
make_kept() { # FOLDER
  local test
  for test in build/{release,fuzz}/tests/asof_decoder_test; do
    [ -x "$test" ] || continue
    say "captures of $test"
    mkdir -p "$1/tmp"
    TMPDIR=$1/tmp ASOF_TEST_KEEP=$1 "$test" --gtest_brief=1 >"$1.log" 2>&1 || say "failed: $1.log"
    rm -r "$1/tmp"
    return
  done
}

# What no mutation finds: files of every format.
make_seeds() {
  rm -rf $seeds build/fuzz/kept
  mkdir -p build/fuzz/kept
  make_kept build/fuzz/kept
  build/fuzz/tests/fuzz/make_fuzz_seeds tests/data $seeds build/fuzz/kept
  rm -r build/fuzz/kept
  mkdir -p $seeds/{block_stream,parts,plan,archive}
  local asof=build/release/asof work demo capture
  [ -x $asof ] || asof=build/fuzz/asof
  work=$(mktemp -d)
  for demo in demo demo-arm64; do
    capture=tests/data/$demo/perf.data
    "$asof" --no-sandbox decode -q --format blocks --symfs tests/data/demo/symfs "$capture" >$seeds/block_stream/$demo
    "$asof" --no-sandbox decode -q --format blocks --calls --symfs tests/data/demo/symfs "$capture" >$seeds/block_stream/$demo-calls
    cp "$capture/data" "$work/perf.data"
    "$asof" --no-sandbox plan -q --kcore "$capture/kcore_dir/kcore" -o "$work/plan-$demo" "$work/perf.data"
    { member core.asof "$work/plan-$demo/core.asof"; member perf.data "$work/perf.data"; } |
      tee $seeds/capture/plan-$demo >$seeds/plan/$demo
    for shard in 0 1; do "$asof" --no-sandbox decode -q --plan "$work/plan-$demo" --shard $shard/2 -o "$work/parts-$demo"; done
    "$asof" --no-sandbox merge -q "$work/plan-$demo" "$work/parts-$demo" -o "$work/whole"
    local n=0 file
    { member 0 "$work/whole"; for file in "$work/parts-$demo"/*; do member $((++n)) "$file"; done; } >$seeds/parts/$demo
    tar -C tests/data/$demo/perf.data -cf - kcore_dir | zstd -q >$seeds/archive/$demo
    tar -C tests/data/$demo/perf.data -czf $seeds/archive/$demo-gz kcore_dir
  done
  rm -rf "$work"
}

targets() { # those named, or all
  if [ $# -gt 0 ]; then printf '%s\n' "$@"; return; fi
  local program
  for program in build/fuzz/tests/fuzz/*_fuzz; do basename "$program" _fuzz; done
}

fuzz() { # TARGET OPTION...
  local target=$1 packed=tests/fuzz/corpus/$1.tar.zst
  shift
  mkdir -p "$corpora/$target" "$seeds/$target" "$findings/$target"
  [ ! -f "$packed" ] || tar -C "$corpora/$target" --zstd -xf "$packed"
  say "fuzzing: $target"
  # Leaks in OpenCSD's interface are known (tests/lsan.supp).
  LSAN_OPTIONS=suppressions=tests/lsan.supp "build/fuzz/tests/fuzz/${target}_fuzz" -max_len=$most_input -timeout=60 -rss_limit_mb=4096 \
    -print_final_stats=1 -artifact_prefix="$findings/$target/" "$@" "$corpora/$target" "$seeds/$target"
}

run() {
  local seconds=${1:-60} target failed=0
  shift || true
  build
  make_seeds
  for target in $(targets "$@"); do
    fuzz "$target" -max_total_time="$seconds" 2>&1 | tee "build/fuzz/$target.log" | tail -n 12 || failed=1
  done
  [ $failed = 0 ] || { say "findings are in $findings"; exit 1; }
}

smoke() {
  build
  make_seeds
  local target
  for target in $(targets); do fuzz "$target" -runs=20000 -seed=1; done
}

# FOLDER FILE: the inputs in a folder as a corpus.
pack() { tar -C "$1" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf - . | zstd -q -19 -f -o "$2"; }

# CONTROL EDGES: inputs that were, by size, the first to reach so many edges, from libFuzzer's list of a merge.
first_to_reach() {
  awk -v least="$2" 'NR == 1 { n = $1 } NR > 2 && NR <= n + 2 { path[NR - 3] = $0 }
    $1 == "COV" && NF - 2 >= least { name = path[$2]; sub(".*/", "", name); if (!seen[name]++) print path[$2] }' "$1"
}

minimize() {
  local target work edges most
  for target in $(targets "$@"); do
    work=$(mktemp -d)
    mkdir "$work/kept" "$work/packed"
    # One input that takes seconds would be most of the time of a run over all.
    LSAN_OPTIONS=suppressions=tests/lsan.supp "build/fuzz/tests/fuzz/${target}_fuzz" -max_len=$most_input -timeout=2 -merge=1 \
      -merge_control_file="$work/control" "$work/kept" "$corpora/$target" "$seeds/$target" >"build/fuzz/$target.merge.log" 2>&1
    pack "$work/kept" "$work/corpus"
    # Where those that reach code more often than others are too many: what reaches new code.
    most=$most_corpus
    [ "$target" != capture ] || most=$most_captures
    for edges in 1 2 3 5 8 13 21 34; do
      [ "$(stat -c %s "$work/corpus")" -gt $most ] || break
      rm -rf "$work/packed"
      mkdir "$work/packed"
      first_to_reach "$work/control" $edges | xargs -d '\n' cp -t "$work/packed"
      pack "$work/packed" "$work/corpus"
    done
    mv "$work/corpus" "tests/fuzz/corpus/$target.tar.zst"
    say "$target: $(tar --zstd -tf "tests/fuzz/corpus/$target.tar.zst" | grep -vc '/$') inputs, $(stat -c %s "tests/fuzz/corpus/$target.tar.zst") bytes"
    rm -rf "$work"
  done
}

# Lines of "FILE:LINE:COLUMN TARGETS", by how many targets it was reached, of the project's own code.
reached_lines() {
  local counts
  counts=$(mktemp)
  paste -d ' ' $reached/* | awk '{ n = 0; for (i = 2; i <= NF; i += 2) n += $i; print $1, n }' >"$counts"
  cut -d ' ' -f 1 "$counts" | llvm-symbolizer-19 -e build/fuzz/tests/fuzz/random_changes --functions=none --no-inlines | grep . |
    paste -d ' ' - <(cut -d ' ' -f 2 "$counts") | sed -n "s|^$PWD/||p" | grep -E '^(arch|decoder|textstore|tools)/'
  rm "$counts"
}

coverage() {
  local runs=${1:-1000} target
  shift || true
  cmake --preset fuzz -DASOF_TESTS=ON >build/fuzz.configure.log 2>&1 || { cat build/fuzz.configure.log; exit 1; }
  cmake --build build/fuzz --target random_changes
  rm -rf $reached
  mkdir -p $reached
  [ $# -gt 0 ] || for target in tests/fuzz/*_fuzz.cpp; do set -- "$@" "$(basename "$target" _fuzz.cpp)"; done
  for target; do
    LSAN_OPTIONS=suppressions=tests/lsan.supp build/fuzz/tests/fuzz/random_changes --target "$target" --runs "$runs" --coverage "$reached/$target"
  done
  say "lines with code that were reached, of all: by folder"
  reached_lines | awk '{ split($1, at, ":"); if (at[2] == 0) next; line = at[1] ":" at[2]
      n = split(at[1], part, "/"); folder[line] = n > 2 ? part[1] "/" part[2] : part[1]; if ($2 > 0) reached[line] = 1 }
    END { for (line in folder) { f = folder[line]; ++all[f]; ++sum; if (line in reached) { ++hit[f]; ++hits } }
          for (f in all) printf "%-24s %7d %7d  %3d %%\n", f, hit[f], all[f], 100 * hit[f] / all[f] | "sort"; close("sort")
          printf "%-24s %7d %7d  %3d %%\n", "all", hits, sum, 100 * hits / sum }'
}

case "${1:-}" in
  run|smoke|minimize|coverage) "$@" ;;
  *) echo "usage: scripts/fuzz.sh run [SECONDS [TARGET...]] | smoke | minimize [TARGET...] | coverage [RUNS [TARGET...]]" >&2; exit 1 ;;
esac
