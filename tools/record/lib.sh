# Shared by record-pt and record-cs: the requirements of a machine are checked one by one, and what is missing
# is reported before anything is recorded. Sourced, not run.
#
# For tests, and for machines with unusual locations: RECORD_ROOT is put before /proc and /sys; PERF and ASOF
# name the programs; RECORD_TOOLS is the folder of `toggle`, `watch` and `restore`.
# shellcheck shell=bash
# shellcheck disable=SC2034 # variables are used by the scripts that source this

root=${RECORD_ROOT:-}
perf=${PERF:-perf}
asof=${ASOF:-asof}
pmus=$root/sys/bus/event_source/devices
missing=0
warnings=0

ok() { printf 'ok       %-12s %s\n' "$1" "$2"; }
warn() {
  printf 'warn     %-12s %s\n' "$1" "$2"
  warnings=$((warnings + 1))
}
miss() {
  printf 'MISSING  %-12s %s\n' "$1" "$2"
  missing=$((missing + 1))
}
die() { # status, words
  local status=$1
  shift
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit "$status"
}

# The first line of a file; nothing when it cannot be read.
first_line() { { head -n 1 "$1" 2>/dev/null || true; } | tr -d '\0'; }
# The same as a number; 0 for anything else: what the shell computes with, it may also run.
number_in() {
  local text
  text=$(first_line "$1")
  if [[ $text =~ ^(0x[0-9a-fA-F]{1,15}|[0-9]{1,18})$ ]]; then printf '%s' "$text"; else printf 0; fi
}

# Is version $1 at least $2? "6.1.187-2" counts as 6.1.
version_at_least() {
  local have=${1%%[!0-9.]*} want=$2
  local major=${have%%.*} rest=${have#*.}
  [ "$rest" = "$have" ] && rest=0
  local minor=${rest%%.*}
  [ "${major:-0}" -gt "${want%%.*}" ] || { [ "${major:-0}" -eq "${want%%.*}" ] && [ "${minor:-0}" -ge "${want#*.}" ]; }
}

find_tools() {
  local here
  here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
  local place
  for place in "${RECORD_TOOLS:-}" "$here" "$here/../../build/release/record"; do
    [ -n "$place" ] && [ -x "$place/toggle" ] && [ -x "$place/watch" ] && [ -x "$place/restore" ] && tools=$place && return 0
  done
  tools=
  return 1
}

check_machine() { # uname -m that is wanted
  local machine
  machine=$(uname -m)
  if [ "$machine" = "$1" ]; then ok machine "$machine, Linux $(uname -r)"; else miss machine "this is $machine, not $1"; fi
}

check_tools() {
  if find_tools; then
    ok tools "$tools"
  else
    miss tools "toggle, watch and restore are not built: cmake --build build/release --target toggle watch restore, or RECORD_TOOLS"
  fi
  if command -v "$asof" >/dev/null 2>&1; then ok asof "$asof"; else warn asof "not found: nothing will be packed and validated here"; fi
}

check_perf() { # least version, why
  local help
  if ! command -v "$perf" >/dev/null 2>&1; then
    miss perf "no perf program (Debian: linux-perf)"
    return
  fi
  perf_version=$("$perf" version 2>/dev/null | sed -n 's/^perf version //p') || true
  help=$("$perf" record -h 2>&1) || true # whose exit status is that of a wrong option
  if [ -z "$perf_version" ]; then
    miss perf "'$perf version' says nothing that is understood"
  elif ! version_at_least "$perf_version" "$1"; then
    miss perf "version $perf_version is too old: $1 is the first that $2"
  elif [[ $help != *--kcore* ]]; then
    miss perf "version $perf_version was built without --kcore"
  else
    ok perf "version $perf_version"
  fi
}

check_permission() {
  local paranoid lockdown
  paranoid=$(first_line "$root/proc/sys/kernel/perf_event_paranoid")
  if [ "$(id -u)" = 0 ]; then
    ok permission "root"
  else
    miss permission "not root: kcore and the trace of all CPUs need it (kernel.perf_event_paranoid is ${paranoid:-not there})"
  fi
  lockdown=$(first_line "$root/sys/kernel/security/lockdown")
  case $lockdown in
    *'[confidentiality]'*) miss lockdown "the kernel is locked down ($lockdown): no kcore, no kernel trace; boot with lockdown=none" ;;
    *'[integrity]'*) warn lockdown "the kernel is locked down for integrity: modules and some probes may be refused" ;;
  esac
}

check_kcore() {
  local kcore=$root/proc/kcore text
  if [ ! -e "$kcore" ]; then
    miss kcore "no /proc/kcore: the kernel was built without CONFIG_PROC_KCORE, so nobody can copy its text"
  elif [ "$(head -c 4 "$kcore" 2>/dev/null | tail -c 3)" != ELF ]; then
    miss kcore "/proc/kcore cannot be read (permission, lockdown)"
  else
    ok kcore "/proc/kcore can be read"
  fi
  # Linux 6.1 of arm64 has no _text there.
  text=$(sed -n '/ [Tt] _s\?text$/{s/ . / /p;q;}' "$root/proc/kallsyms" 2>/dev/null) || true
  if [ -z "$text" ]; then
    miss kallsyms "/proc/kallsyms has no _text and no _stext (CONFIG_KALLSYMS)"
  elif [[ $text =~ ^0+\  ]]; then
    miss kallsyms "addresses in /proc/kallsyms are hidden: sysctl kernel.kptr_restrict=0"
  else
    ok kallsyms "${text#* } is at ${text% *}"
  fi
}

# Does the kernel write TEXT_POKE records? Accepting the request proves nothing, so a static key is flipped.
check_text_poke() {
  local said status=0
  [ -n "${tools:-}" ] || return 0
  said=$("$tools/watch" --self-test ${root:+--root "$root"} 2>&1) || status=$?
  case $status in
    0) ok text_poke "$said" ;;
    2) miss text_poke "${said#watch: }" ;;
    4) miss text_poke "the kernel accepts text_poke and writes no record when a static key is flipped${said:+ ($said)}" ;;
    *) warn text_poke "not tested: ${said#watch: }" ;;
  esac
}

check_workload() {
  local kinds
  [ -n "${tools:-}" ] || return 0
  kinds=$("$tools/toggle" --list ${root:+--root "$root"} 2>/dev/null | awk '{n[$1]++} END {for (k in n) {printf "%s%s %d", s, k, n[k]; s = ", "}}') || true
  if [ -n "$kinds" ]; then ok workload "$kinds"; else warn workload "toggle finds nothing that it can switch here"; fi
}

verdict() {
  printf '%d missing, %d warnings\n' "$missing" "$warnings"
  [ "$missing" -eq 0 ]
}

# Where probes are set; nothing if that is nowhere.
find_tracefs() {
  local place
  for place in "$root/sys/kernel/tracing" "$root/sys/kernel/debug/tracing"; do
    if [ -w "$place/kprobe_events" ]; then
      printf '%s' "$place"
      return
    fi
  done
}

# The function that ends the recording: a probe on it, and a list of events of its own, whose first line says that it ran.
trigger_probe=
trigger_list=
check_trigger() {
  local tracing file=${trigger%:*} symbol=${trigger##*:}
  [ -n "$trigger" ] || return 0
  tracing=$(find_tracefs)
  if [ -z "$tracing" ]; then
    miss trigger "no kprobe_events below tracefs (CONFIG_KPROBE_EVENTS, or tracefs is not mounted)"
  elif ! [[ $symbol =~ ^[A-Za-z0-9_.$]+([+](0x[0-9a-fA-F]+|[0-9]+))?$ ]]; then
    miss trigger "'$symbol' is no name of a function, nor one with an offset"
  elif [ "$file" = "$trigger" ]; then
    if grep -q " [TtWw] ${symbol%%+*}\( \|	\|\$\)" "$root/proc/kallsyms" 2>/dev/null; then
      trigger_probe="p:asof/trigger $symbol" trigger_list=$tracing/kprobe_events
    else
      miss trigger "the kernel has no function $symbol"
    fi
  elif ! [ -w "$tracing/uprobe_events" ]; then
    miss trigger "no uprobe_events below tracefs (CONFIG_UPROBE_EVENTS)"
  elif trigger_probe=$("$perf" probe -x "$file" -D "asof:trigger=$symbol" 2>/dev/null) && [ -n "$trigger_probe" ]; then
    trigger_list=$tracing/uprobe_events
  else
    miss trigger "perf finds no function $symbol in $file"
  fi
  [ -z "$trigger_list" ] || ok trigger "$trigger_probe"
}

# Its events go into a list of their own, so that nobody else's are read.
set_trigger() {
  [ -n "$trigger_list" ] || return 0
  trigger_place=${trigger_list%/*}/instances/asof-trigger
  guard append "$trigger_list" -:asof/trigger
  printf '%s\n' "$trigger_probe" >>"$trigger_list" || die 4 "the kernel does not take the probe: $trigger_probe"
  guard folder "$trigger_place"
  if ! mkdir "$trigger_place" || ! printf 0 >"$trigger_place/events/asof/trigger/enable"; then
    die 4 "the probe cannot be listened to in $trigger_place"
  fi
}

# The command that is recorded waits until the probe is listened to: what it runs first may be the trigger. Until then it runs no
# program of its own, which may do so, too.
# shellcheck disable=SC2016 # the inner shell's
begin_when_listening=': >"$1/started"
read -r line <"$1/listening" || exit
shift
exec "$@"'

# Until it ran: then perf reads what it has of the trace. It has to be past that when it is told to end. The probe counts from where
# perf has started the command: before, the signal would end perf, or mean nothing to it.
wait_for_trigger() { # perf, the recording's folder
  local line
  while [ ! -e "$2/started" ]; do
    kill -0 "$1" 2>/dev/null || return 0
    sleep 0.02
  done
  sleep 0.2 # until perf waits for trace
  if ! printf 1 >"$trigger_place/events/asof/trigger/enable"; then
    kill "$1" 2>/dev/null || true
    return 0
  fi
  printf 'begin\n' >"$2/listening"
  read -r line <"$trigger_place/trace_pipe" || return 0
  printf '%s\n' "$line" >"$2/triggered"
  kill -USR2 "$1" 2>/dev/null || return 0
  sleep 1
  kill "$1" 2>/dev/null || true
}

# Options of both scripts.
out=
seconds=
trigger=
seed=1
only_check=0
only_restore=0
validate=1
user=
command=()
parse_options() {
  while [ $# -gt 0 ]; do
    case $1 in
      -o) out=${2:?} && shift ;;
      --seconds) seconds=${2:?} && shift ;;
      --trigger) trigger=${2:?} && shift ;;
      --seed) seed=${2:?} && shift ;;
      --check) only_check=1 ;;
      --no-validate) validate=0 ;;
      --restore) only_restore=1 ;;
      --user) user=u ;;
      -h | --help) usage 0 ;;
      --)
        shift
        command=("$@")
        break
        ;;
      *) usage 1 ;;
    esac
    shift
  done
  if [ "$only_restore" = 1 ]; then
    find_tools || die 2 "restore is not built, or RECORD_TOOLS does not name its folder"
    restore_leftovers
    exit 0
  fi
  case $out in -*) out=./$out ;; esac
  case $trigger in */*) user=u ;; esac
  [ -n "$seconds" ] || if [ -n "$trigger" ]; then seconds=60; else seconds=5; fi
  [ "$only_check" = 1 ] || [ -n "$out" ] || usage 1
}

# What is switched on is put back, whoever is killed (undo.h): the guardian does it when this script is no more, and
# where the guardian is killed too, the next recording does, or --restore.
restore_leftovers() {
  "$tools/restore" ${root:+--root "$root"} || die 4 "what an earlier recording has left switched on could not be put back"
}
guard_in=
start_guard() {
  local answer
  restore_leftovers
  coproc GUARD { exec "$tools/restore" --guard ${root:+--root "$root"}; }
  guard_pid=$!
  guard_out=${GUARD[0]} guard_in=${GUARD[1]}
  read -r answer <&"$guard_out" || true
  [ "${answer:-}" = ok ] || die 4 "nothing would be put back if this were killed: $root/run/asof-record cannot be used"
  trap end_guard EXIT
}
# A line of undo.h, field by field.
guard() {
  local line answer=
  printf -v line '%s\t' "$@"
  if kill -0 "$guard_pid" 2>/dev/null && printf '%s\n' "${line%?}" >&"$guard_in"; then read -r answer <&"$guard_out" || true; fi
  [ "$answer" = ok ] || die 4 "the guardian does not answer${answer:+: $answer}"
}
end_guard() {
  [ -n "$guard_in" ] || return 0
  exec {guard_in}>&-
  guard_in=
  wait "$guard_pid" || restore_leftovers
}

usage() {
  cat >&2 <<END
usage: ${0##*/} --check
       ${0##*/} --restore
       ${0##*/} -o DIR [--seconds S] [--seed N] [--user] [--trigger SYM] [--no-validate] [-- COMMAND...]
Checks what this machine can do, records COMMAND (by default a workload that makes the kernel change its text all the time)
with side-band, copies of kcore at both ends and a watcher, packs all of it into DIR.asof.tar.zst and validates it.
--trigger keeps what ran before SYM, a function of the kernel or FILE:SYM, runs for the first time, and ends the recording
then; without COMMAND it waits for that for S seconds (60).
--restore puts back what a recording that was killed has left switched on. (The next recording does so, too.)
Exit status: 0 done, 1 usage, 2 something is missing here (all of it is listed), 3 validation failed, 4 recording failed.
END
  exit "$1"
}

# Nobody else may put anything into the folder: what is written here as root follows no links of theirs.
make_folder() {
  umask 077
  mkdir -p "$out" || die 4 "cannot make $out"
  [ ! -L "${out%/}" ] || die 4 "$out is a link"
  [ -O "$out" ] || die 4 "$out belongs to somebody else"
  [ -z "$(find "$out" -maxdepth 0 -perm /022)" ] || die 4 "others may write to $out"
}

# record EVENTS...: perf's event options.
record() {
  local data=$out/perf.data status=0 watcher recorder='' listener='' stopped=0 how=()
  make_folder
  [ -e "$data" ] && die 4 "$data is there already"
  if [ -n "$trigger" ]; then
    how=(-S -e asof:trigger)
    [ ${#command[@]} -gt 0 ] || command=(sleep "$seconds")
    command=(sh -c "$begin_when_listening" begin "$out" "${command[@]}")
    mkfifo "$out/listening" || die 4 "$out takes no FIFO"
  fi
  [ ${#command[@]} -gt 0 ] || command=("$tools/toggle" --seconds "$seconds" --seed "$seed")
  # perf runs in the background, because bash runs no trap while it waits for a command: whoever ends the script ends
  # perf and the watcher with it.
  trap 'stopped=1; [ -z "$recorder" ] || kill "$recorder" 2>/dev/null || true' INT TERM HUP
  "$tools/watch" -o "$out/ksym_text.bin" ${root:+--root "$root"} &
  watcher=$!
  guard end "$watcher"
  # The watcher makes its file when its rings are open: of what perf traces from then on, it misses nothing.
  while [ "$stopped" = 0 ] && [ ! -e "$out/ksym_text.bin" ] && kill -0 "$watcher" 2>/dev/null; do sleep 0.02; done
  if [ "$stopped" = 0 ]; then
    "$perf" record --kcore -a -m 4M,64M -o "$data" "$@" "${how[@]}" -- "${command[@]}" <&0 &
    recorder=$!
    guard end "$recorder"
    if [ -n "$trigger" ]; then
      wait_for_trigger "$recorder" "$out" &
      listener=$!
      guard end "$listener"
    fi
    [ "$stopped" = 0 ] || kill "$recorder" 2>/dev/null || true
  fi
  while [ -n "$recorder" ]; do
    status=0
    wait "$recorder" || status=$?
    kill -0 "$recorder" 2>/dev/null || break
  done
  trap - INT TERM HUP
  kill "$watcher" 2>/dev/null || true
  wait "$watcher" || warn watcher "ended with status $?: code that perf lost has no other copy"
  [ "$stopped" = 0 ] || die 4 "stopped by a signal; $out holds what was recorded until then"
  if [ -n "$listener" ]; then
    kill "$listener" 2>/dev/null || true
    wait "$listener" 2>/dev/null || true
    : <>"$out/listening" # whoever waits for it still ends
    rm -f "$out/started" "$out/listening"
    [ -s "$out/triggered" ] || die 4 "$trigger did not run: nothing was kept"
    rm "$out/triggered"
    [ "$status" = 143 ] && status=0 # as it was told
  fi
  [ "$status" -eq 0 ] || die 4 "perf record ended with status $status"
  [ -s "$data/data" ] || die 4 "perf record wrote no $data/data"
  if [ -e "$out/ksym_text.bin" ]; then mv "$out/ksym_text.bin" "$data/"; fi
  copy_kcore_end "$data"
}

# perf copies kcore at the start of a recording: a second, empty recording gives the copy at the end.
copy_kcore_end() {
  local data=$1 second=$out/end.data name
  if "$perf" record --kcore -e dummy -o "$second" -- true >/dev/null 2>&1 && [ -s "$second/kcore_dir/kcore" ]; then
    for name in kcore kallsyms modules; do
      if [ -e "$second/kcore_dir/$name" ]; then mv "$second/kcore_dir/$name" "$data/$name.end"; fi
    done
  else
    warn kcore-end "the second copy of kcore failed: silent changes of text will not be seen"
  fi
  rm -rf "$second"
}

finish() {
  command -v "$asof" >/dev/null 2>&1 || return 0
  "$asof" pack "$out/perf.data" -o "${out%/}.asof.tar.zst" || die 4 "asof pack ended with status $?"
  [ "$validate" = 1 ] || return 0
  "$asof" validate "${out%/}.asof.tar.zst" || exit 3
}
