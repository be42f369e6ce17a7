#!/bin/busybox sh
# shellcheck disable=SC2154 # mode, workload, seed, folder: of init
# workload.sh prepare|run|finish: what is recorded. $workload names it; `prepare` runs before the recording and `finish`
# after it.
tracing=/sys/kernel/tracing
livepatch=/sys/kernel/livepatch/livepatch
release=$(uname -r)

look() { ls -l /usr/bin >/dev/null; }
set_key() { echo "$2" >"/proc/sys/kernel/$1"; }
probe() { echo "$1" >>$tracing/kprobe_events; }
# The first offset within the function that the kernel accepts, past what the function tracer uses.
probe_inside() { # EVENT FUNCTION FROM
  offset=$3
  while [ "$offset" -lt $(($3 + 24)) ]; do
    probe "p:asof/$1 $2+$offset" 2>/dev/null && return
    offset=$((offset + 1))
  done
  echo "no probe within $2"
}
# Until the live patch is in the state that was asked for: each task changes over when it is nowhere in the function.
patched() {
  for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do
    [ -e $livepatch/transition ] || return 0 # it has been disabled, and is gone
    read -r transition <$livepatch/transition && [ "$transition" = 0 ] && return
    sleep 0.2
  done
  echo "the live patch is still in transition"
}
module() { find "/usr/lib/modules/$release" -name "$1.ko"; }
# A signal for perf: snapshots, and other output files.
mark() { [ -z "$snapshots" ] || { kill -USR2 $PPID; sleep 0.02; }; }

prepare() {
  case $workload in
  kprobes)
    probe 'p:asof/entry vfs_read'
    probe 'r:asof/return vfs_write'
    probe_inside inside vfs_read 8
    probe_inside inside2 ksys_read 8
    ;;
  uprobe | uprobes)
    /machine/work uprobe-offset >/tmp/offsets
    { read -r target; read -r compute; } </tmp/offsets
    echo "p:asof/target /machine/work:$target" >>$tracing/uprobe_events
    echo "r:asof/return /machine/work:$target" >>$tracing/uprobe_events
    echo "p:asof/compute /machine/work:$compute" >>$tracing/uprobe_events
    [ "$workload" = uprobes ] || echo 1 >$tracing/events/asof/enable # the program alone, with its probes
    ;;
  xdp) insmod "$(module dummy)" 2>/dev/null && ifconfig dummy0 up ;;
  esac
}

run() {
  case $workload in
  true) : ;;
  sleep) sleep 0.02; mark; sleep 0.02 ;;
  ls) look; mark; look ;;
  keys)
    for on in 1 0 1 0; do
      set_key sched_schedstats $on; look
      set_key task_delayacct $on; set_key bpf_stats_enabled $on; look
      [ $on = 0 ] || mark
    done
    ;;
  tracepoints)
    for event in sched/sched_switch raw_syscalls/sys_enter kmem/kmalloc; do
      echo 1 >$tracing/events/$event/enable; look
      echo 0 >$tracing/events/$event/enable; look
    done
    ;;
  kprobes) # the pause lets the kernel optimise
    echo 1 >$tracing/events/asof/enable; look
    sleep 0.3; mark; look
    echo 0 >$tracing/events/asof/enable; look
    sleep 0.3; look
    ;;
  uprobes)
    /machine/work uprobe "$seed"
    echo 1 >$tracing/events/asof/enable
    /machine/work uprobe "$seed"
    echo 0 >$tracing/events/asof/enable
    /machine/work uprobe "$seed"
    ;;
  ftrace)
    echo vfs_open >$tracing/set_ftrace_filter
    for tracer in function function_graph; do
      echo $tracer >$tracing/current_tracer; look; mark
      echo nop >$tracing/current_tracer; look
    done
    ;;
  modules) # another one in between, so that it is loaded elsewhere
    file=$(module dummy)
    for other in ifb nlmon tls; do
      insmod "$file" && ifconfig dummy0 up; look; mark
      rmmod dummy
      insmod "$(module $other)"
    done
    rmmod ifb; rmmod nlmon; rmmod tls
    insmod "$file"; look; rmmod dummy
    ;;
  livepatch)
    [ -e /machine/livepatch.ko ] || { echo "there is no module with a live patch"; return 1; }
    cat /proc/cmdline >/dev/null
    insmod /machine/livepatch.ko; patched
    cat /proc/cmdline; mark; look
    echo 0 >$livepatch/enabled; patched
    cat /proc/cmdline >/dev/null; rmmod livepatch; look
    ;;
  toggle) /machine/toggle --seed "$seed" --rounds 1 --workers 1 --hold 2 --burst 2 --module "$(module dummy)" ;;
  mix)
    /machine/work switch "$seed" &
    set_key sched_schedstats 1
    /machine/work signals
    mark
    set_key sched_schedstats 0
    wait
    ;;
  *) /machine/work "$workload" "$seed"; mark ;;
  esac
}

finish() {
  case $workload in
  kprobes) echo >$tracing/kprobe_events ;;
  uprobe | uprobes)
    echo 0 >$tracing/events/asof/enable
    echo >$tracing/uprobe_events
    ;;
  ftrace) echo >$tracing/set_ftrace_filter ;;
  xdp) rmmod dummy ;;
  esac
}

"$1"
