#!/usr/bin/env bash
# verbs.sh BUILD CAPTURE [VERB...]: CPU time of verbs that decode a whole capture, with two workers, and its ratio to
# that of `asof digest` in the same run. Digest is measured before and after the others: if the two differ much,
# the machine was too busy. Without VERB: all of them, of which some write gigabytes below TMPDIR.
set -euo pipefail
build=${1:?usage: verbs.sh BUILD CAPTURE [VERB...]} capture=${2:?usage: verbs.sh BUILD CAPTURE [VERB...]}
shift 2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cpu_times() { # ARGUMENT...: user, system and peak KiB of asof; FAILED where it does not do that
  local status=0
  /usr/bin/time -q -f '%U %S %M' -o "$folder/time" "$build/asof" "$@" -j2 "$capture" \
    >"$folder/output" 2>"$folder/messages" || status=$?
  if [ "$status" -ne 0 ] && [ "$status" -ne 3 ]; then
    echo "FAILED: $(head -1 "$folder/messages")"
  else
    tail -1 "$folder/time"
  fi
  rm -f "$folder"/t.*
}
row() { # NAME TIMES
  case $2 in
    FAILED*) printf '| %s | %s | | |\n' "$1" "$2" ;;
    *) awk -v name="$1" -v digest="$digest" '{ s = $1 + $2
         printf "| %s | %.2f | %.1f | %d |\n", name, s, s / digest, $3 / 1024 }' <<<"$2" ;;
  esac
}
before=$(cpu_times digest)
digest=$(awk '{ s = $1 + $2; print (s > 0 ? s : 0.01) }' <<<"$before")
printf '| verb | CPU s | ratio to digest | peak MiB |\n|-|-:|-:|-:|\n'
row digest "$before"
verbs=("$@")
[ ${#verbs[@]} -ne 0 ] || verbs=(branches bolt validate stacks firefox html-calls html perfetto chrome csv jsonl sqlite)
for verb in "${verbs[@]}"; do
  case $verb in
    bolt) args=(branches --format bolt-preagg) ;;
    stacks) args=(stacks --weight instructions) ;;
    firefox) args=(stacks --weight instructions --format firefox) ;;
    html-calls) args=(timeline --detail calls -o "$folder/t.html") ;;
    html) args=(timeline -o "$folder/t.html") ;;
    perfetto) args=(timeline -o "$folder/t.pftrace") ;;
    chrome) args=(timeline -o "$folder/t.json") ;;
    csv | jsonl) args=(timeline -o "$folder/t.$verb") ;;
    sqlite) args=(timeline -o "$folder/t.db") ;;
    *) args=("$verb") ;;
  esac
  row "$verb" "$(cpu_times "${args[@]}")"
done
row 'digest again' "$(cpu_times digest)"
