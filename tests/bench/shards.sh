#!/usr/bin/env bash
# What shards cost. Real segments (a bundle's trace, repeated) as many CPUs with much trace: planning, decoding by shards of several sizes
# against one run, merging, and memory. Nothing is timed by the clock: CPU seconds, user and system.
#   shards.sh ASOF BUNDLE-FOLDER [STREAMS [COPIES [SAMPLE]]]
# STREAMS CPUs (64), each with COPIES (33) times the trace of the bundle; of the shards of that, SAMPLE (4) are decoded.
set -euo pipefail
asof=$(realpath "$1") bundle=$(realpath "$2") streams=${3:-64} copies=${4:-33} sample=${5:-4}
work=$(mktemp -d "${TMPDIR:-/var/tmp}/asof-shards-XXXXXX")
trap 'rm -rf "$work"' EXIT

calc() { awk "BEGIN { print $1 }"; }

cpu() { # command...: CPU seconds and KiB at most, into $seconds and $kib
  local out
  out=$({ /usr/bin/time -f '%U %S %M' "$@" >/dev/null; } 2>&1 | tail -n 1)
  read -r user system kib <<<"$out"
  seconds=$(calc "$user + $system")
}

one_size() { # n, together: all of n shards, so many in a process, against one run
  local k last total=0 most=0
  rm -rf "$work/parts"
  for ((k = 0; k < $1; k += $2)); do
    last=$((k + $2 < $1 ? k + $2 - 1 : $1 - 1))
    cpu "$asof" decode -q -j1 --plan "$work/plan" --shard "$k-$last/$1" -o "$work/parts"
    total=$(calc "$total + $seconds")
    most=$((kib > most ? kib : most))
  done
  cpu "$asof" merge -q "$work/plan" "$work/parts" -o "$work/whole"
  [ "$("$asof" digest -q "$work/whole")" = "$digest" ] || { echo "the digest differs" >&2; exit 1; }
  printf '| %5d | %5d | %8s s | %5.2f | %7d KiB | %10d | %6s s |\n' "$1" "$2" "$total" "$(calc "$total / $serial")" "$most" \
    "$(cat "$work"/parts/* | wc -c)" "$seconds"
}

cpu "$asof" plan -q "$bundle" -o "$work/plan"
printf 'plan: %s s, %d KiB; core %d bytes\n' "$seconds" "$kib" "$(stat -c %s "$work/plan/core.asof")"
digest=$("$asof" digest -q "$bundle")
cpu "$asof" decode -q -j1 --format blocks "$bundle" -o "$work/serial"
serial=$seconds
printf 'one run: %s s, %d KiB\n' "$seconds" "$kib"
printf '| shards | in a process | CPU | to one run | largest | bytes of parts | merge |\n'
for n in 1 4 16 64; do one_size $n 1; done
for n in 4 16 64 1024 4096; do one_size $n $n; done

mkdir "$work/big"
for ((k = 0; k < copies; k++)); do cat "$bundle/trace.pt"; done >"$work/big/trace.pt"
ln -s "$bundle/text.img" "$work/big/"
{
  list=$(for ((k = 0; k < streams; k++)); do printf '%s{"file": "trace.pt", "cpu": %d}' "$([ "$k" = 0 ] || echo ', ')" "$k"; done)
  tr -d '\n' <"$bundle/bundle.json" | sed "s/\"streams\": *\[[^]]*\]/\"streams\": [$list]/"
} >"$work/big/bundle.json"
cpu "$asof" plan -q "$work/big" -o "$work/big-plan"
n=$(sed 's/.*"shards":\([0-9]*\).*/\1/' "$work/big-plan/plan.json")
bytes=$(sed 's/.*"trace_bytes":\([0-9]*\).*/\1/' "$work/big-plan/plan.json")
printf '%d CPUs, %s bytes, %d shards; plan: %s s, %d KiB\n' "$streams" "$bytes" "$n" "$seconds" "$kib"
# As many as a plan can have, of a capture that is large enough for them.
total=0
for ((k = 0; k < sample; k++)); do
  cpu "$asof" decode -q -j1 --plan "$work/big-plan" --shard "$((k * 4096 / sample + 7))/4096" -o "$work/parts"
  total=$(calc "$total + $seconds")
done
printf 'one of 4096 shards: %s s, %.3f of what as much of one run takes\n' "$(calc "$total / $sample")" \
  "$(calc "$total / $sample / ($serial * $bytes / 4096 / $(stat -c %s "$bundle/trace.pt"))")"
total=0
rm -rf "$work/parts"
for ((k = 0; k < sample; k++)); do
  cpu "$asof" decode -q -j1 --plan "$work/big-plan" --shard "$((k * n / sample + (k + 1) % 3))/$n" -o "$work/parts"
  total=$(calc "$total + $seconds")
  printf 'a shard: %s s, %d KiB\n' "$seconds" "$kib"
done
cpu "$asof" merge -q "$work/big-plan" "$work/parts" -o "$work/whole"
printf 'merge of %d parts, %d bytes: %s s, %d KiB\n' "$sample" "$(stat -c %s "$work/whole")" "$seconds" "$kib"
printf 'all shards, from the sample: %.0f s\n' "$(calc "$total * $n / $sample")"
