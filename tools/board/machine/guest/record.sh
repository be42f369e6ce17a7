# Records the mode and workload of the command line into /tmp/out. Sourced by nothing; run by init.
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
echo "perf record $*"
case $style in
run) perf record -o /tmp/out/perf.data "$@" -- sh /machine/workload.sh run ;;
program) # the workload's program itself, without a shell around it
  perf record -o /tmp/out/perf.data "$@" -- /machine/work "$workload" "$seed" ;;
pipe) perf record -o - "$@" -- sh /machine/workload.sh run >/tmp/out/perf.data ;;
snapshot) # a snapshot in the midst of the work, and one at its end
  snapshots=1 perf record -o /tmp/out/perf.data "$@" -- sh /machine/workload.sh run ;;
switch) # another file at each signal
  mkdir /tmp/out/files
  snapshots=1 perf record -o /tmp/out/files/perf.data "$@" -- sh /machine/workload.sh run ;;
attach)
  sh /machine/workload.sh run &
  perf record -o /tmp/out/perf.data "$@" -p $! ;;
*) echo "there is no style $style"; exit 1 ;;
esac
status=$?
mkdir -p /tmp/out/buildid /tmp/.debug
(cd /tmp/.debug && /machine/work vdso)
cp -r /tmp/.debug/. /tmp/out/buildid/
for dump in /tmp/jit-*.dump; do [ ! -e "$dump" ] || cp "$dump" /tmp/out/; done
dmesg >/tmp/out/dmesg.txt
exit $status
