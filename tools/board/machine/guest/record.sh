#!/bin/busybox sh
# shellcheck disable=SC2154 # mode, workload, seed, folder: of init
# Records $mode with $workload into $folder.
# A line of /machine/modes: name, style, needs, and perf record's arguments.
cd /tmp || exit 1
line=$(grep "^$mode  *" /machine/modes | head -n 1)
[ -n "$line" ] || { echo "there is no mode $mode"; exit 1; }
set -f
# shellcheck disable=SC2086 # its words
set -- $line
style=$2
shift 3
set +f
export workload seed

sh /machine/workload.sh prepare
# A word of the arguments may have + where it has a space (address filters).
for word in "$@"; do
  shift
  set -- "$@" "$(printf %s "$word" | tr + ' ')"
done
[ "$style" = script ] && echo "$mode $*" || echo "perf record $*"
case $style in
run) perf record -o "$folder/perf.data" "$@" -- sh /machine/workload.sh run ;;
program) # the workload's program itself, without a shell around it
  perf record -o "$folder/perf.data" "$@" -- /machine/work "$workload" "$seed" ;;
pipe) perf record -o - "$@" -- sh /machine/workload.sh run >"$folder/perf.data" ;;
pipe-kcore) # kernel text as it is before, which a pipe does not have
  perf record --kcore -o /tmp/before -e dummy true && mkdir "$folder/perf.data" &&
    mv /tmp/before/kcore_dir "$folder/perf.data/" &&
    perf record -o - "$@" -- sh /machine/workload.sh run >"$folder/perf.data/data" ;;
snapshot) # a snapshot in the midst of the work, and one at its end
  snapshots=1 perf record -o "$folder/perf.data" "$@" -- sh /machine/workload.sh run ;;
switch) # another file at each signal
  mkdir "$folder/files"
  snapshots=1 perf record -o "$folder/files/perf.data" "$@" -- sh /machine/workload.sh run ;;
script) # a script of tools/record as it is; what its mode's name has behind it is in the arguments
  script=/machine/record/$(echo "$mode" | cut -d - -f 1,2)
  RECORD_TOOLS=/machine/record "$script" --check || exit
  "$script" -o "$folder/recording" --seed "$seed" "$@" ;;
attach) # to a process that repeats the workload
  (while :; do sh /machine/workload.sh run; done) &
  perf record -o "$folder/perf.data" "$@" -p $! -- sleep 0.1
  status=$?
  kill $!
  (exit $status) ;;
*) echo "there is no style $style"; exit 1 ;;
esac
status=$?
for dump in /tmp/jit-*.dump; do [ ! -e "$dump" ] || mv "$dump" "$folder/"; done
sh /machine/workload.sh finish
exit $status
