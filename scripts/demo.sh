#!/usr/bin/env bash
# demo.sh [ASOF]: what asof is for, shown on the small capture in tests/data/demo. README.md quotes the output, and
# a test compares the two (tests/tools/demo/readme_test.cpp).
set -euo pipefail
asof=$(realpath "${1:-build/release/asof}")
cd "$(dirname "$0")/../tests/data/demo"
input=(perf.data --symfs symfs)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

"$asof" report "${input[@]}" >"$scratch/report"

echo "1. The capture: two CPUs, a static key switched on and off, two BPF programs at one address, a full trace buffer"
echo "   $(tail -n 1 "$scratch/report")"

echo
echo "2. The same trace decoded with one state of the text, as other tools do, and with the text of each instant"
printf '   %-16s %10s %10s %10s %10s\n' "--text-at" right wrong missing errors
for mode in first last asof; do
  # Exit status 3 says that something differs; that is the point here.
  "$asof" validate "${input[@]}" --truth truth --text-at $mode -q >"$scratch/$mode" || [ $? = 3 ]
  # Counts are printed in groups of three digits.
  sed 's/\([0-9]\) \([0-9]\)/\1\2/g' "$scratch/$mode" | sed -n 's/^cpu [0-9]*: //p; s/^decoded .* \([0-9]*\) error.*/\1/p' |
    awk -v mode=$mode '
      NF == 1 { errors = $1; next }
      { gsub(",", ""); right += $2; wrong += $4; missing += $6 }
      END { printf "   %-16s %10d %10d %10d %10d\n", mode, right, wrong, missing, errors }'
done

echo
echo "3. One site of the static key, before and after"
site=$("$asof" events "${input[@]}" --type TEXT_POKE -q | sed -n '1s/.*TEXT_POKE 0x\([0-9a-f]*\) .*/\1/p')
"$asof" text "$site" --length 5 --diff -i "${input[@]}" -q | sed 's/^/   /'

echo
echo "4. BPF programs: the second was loaded at the address of the first"
sed -n 's/^  bpf prog/   bpf prog/p' "$scratch/report"
"$asof" decode "${input[@]}" -q -F time,ip,sym,disasm,textsrc --ns >"$scratch/decoded"
for id in 11 12; do
  grep -m 2 "<bpf prog id $id " "$scratch/decoded" | tr '\t' ' ' | sed 's/^/  /'
done

echo
echo "5. What was lost"
sed -n 's/^loss: /   /p; /^losses in the recording/,/^[^ l]/s/^  E-LOST/   E-LOST/p' "$scratch/report"

echo
echo "6. The output does not depend on the number of threads"
for jobs in 1 2 4; do
  "$asof" decode "${input[@]}" -q -j $jobs --ns -F +insn,+textver >"$scratch/j$jobs"
  cmp "$scratch/j1" "$scratch/j$jobs"
done
echo "   -j1, -j2 and -j4: $(wc -l <"$scratch/j1") lines each, identical"
