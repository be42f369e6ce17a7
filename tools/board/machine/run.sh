# Shared by tools/board/pt and tools/board/ete: the guest's programs, its start, its results. Sourced after lib.sh.
# shellcheck shell=bash disable=SC2154,SC2034 # variables of the scripts

# guest_files ARCHITECTURE MODES: workloads and scenario, into $work/guest.
guest_files() {
  local compiler=cc into=$work/guest record=$machine_tree/tools/record flags
  [ "$1" != aarch64 ] || compiler=aarch64-linux-gnu-gcc
  flags=(-std=gnu11 -O2 -static -I"$machine_tree")
  command -v "$compiler" >/dev/null || fail "$compiler is missing (Debian: gcc, or gcc-aarch64-linux-gnu)"
  mkdir -p "$into/machine"
  cp "$machine_here/guest/init" "$into/"
  chmod +x "$into/init"
  cp "$machine_here"/guest/*.sh "$into/machine/"
  cp "$2" "$into/machine/modes"
  "$compiler" "${flags[@]}" -pthread "$machine_here"/guest/*.c "$record/toggle_btf.c" "$record/toggle_files.c" "$record/undo.c" -o "$into/machine/work"
  "$compiler" "${flags[@]}" "$record"/toggle*.c "$record/undo.c" -o "$into/machine/toggle"
}

# work_programs: the workloads that are programs, on one line. (uprobe-offset and vdso only help.)
work_programs() {
  sed -n '/vdso/d; s/^    {"\([a-z]*\)", work_.*/\1/p' "$machine_here/guest/work.c" | paste -sd ' '
}

# check_workloads MODES-FILE MODES WORKLOADS: a mode of the style `program` records one of the programs, not a shell.
check_workloads() {
  local word name workload workloads programs
  programs=$(work_programs)
  for word in ${2//,/ }; do
    name=${word%%:*} workloads=${word#*:}
    [ "$name" != "$word" ] || workloads=$3
    [ "$(awk -v name="$name" '$1 == name {print $2}' "$1")" = program ] || continue
    for workload in ${workloads//,/ }; do
      [[ " $programs " == *" $workload "* ]] || fail "mode $name records a program; $workload is none of $programs"
    done
  done
}

# records_by_script MODES-FILE MODES: does one of these modes (MODE or MODE:WORKLOAD, with commas between) record with a script of
# tools/record?
records_by_script() {
  awk -v modes=",$2," '{gsub(/:[^,]*/, "", modes)} $2 == "script" && index(modes, "," $1 ",") {found = 1} END {exit !found}' "$1"
}

# add_livepatch KERNEL: the module of the workload `livepatch`, into $work/guest. No kernel package has one.
add_livepatch() {
  "$machine_here/packages.sh" --store "$machine_store" "headers-$1"
  "$machine_here/module.sh" "$1" "$machine_here/module/livepatch.c" "$work/guest/machine/livepatch.ko"
}

# build_recorder CC C++ DIRECTORY: what the scripts of tools/record run, but for toggle.
build_recorder() {
  local record=$machine_tree/tools/record
  "$1" -std=gnu11 -O2 -static -I"$machine_tree" "$record"/{restore,undo}.c -o "$3/restore"
  "$1" -std=gnu11 -O2 -c -I"$machine_tree" "$record/undo.c" -o "$3/undo.o"
  "$2" -std=c++20 -O2 -static -I"$machine_tree" "$record"/{watch,watcher,ring}.cpp "$3/undo.o" -o "$3/watch"
  rm "$3/undo.o"
}

# add_recorder ARCHITECTURE: tools/record as on a machine that is to be recorded, into $work/guest: scripts, toggle, watch, restore,
# a bash; on x86-64 this asof as well, with this machine's libraries.
add_recorder() {
  local compiler=c++ c=cc suffix='' into=$work/guest/machine record=$machine_tree/tools/record library
  [ "$1" != aarch64 ] || { compiler=aarch64-linux-gnu-g++ c=aarch64-linux-gnu-gcc suffix=-arm64; }
  command -v "$compiler" >/dev/null || fail "$compiler is missing (Debian: g++, or g++-aarch64-linux-gnu)"
  "$machine_here/packages.sh" --store "$machine_store" "bash$suffix"
  mkdir -p "$into/record" "$work/guest/usr/bin"
  cp -L "$machine_store/bash$suffix/usr/bin/bash-static" "$work/guest/usr/bin/bash"
  cp "$record/record-pt" "$record/record-cs" "$record/lib.sh" "$into/record/"
  cp "$into/toggle" "$into/record/"
  build_recorder "$c" "$compiler" "$into/record"
  [ "$1" = x86_64 ] || return 0
  mkdir -p "$into/lib"
  strip -o "$into/lib/asof" "$asof"
  for library in $(ldd "$asof" | sed -n 's/.*=> \(\/[^ ]*\).*/\1/p; s/^[ \t]*\(\/[^ ]*ld-linux[^ ]*\).*/\1/p'); do cp -L "$library" "$into/lib/"; done
  printf '#!/bin/busybox sh\nexec /machine/lib/ld-linux-x86-64.so.2 --library-path /machine/lib /machine/lib/asof "$@"\n' >"$work/guest/usr/bin/asof"
  chmod +x "$work/guest/usr/bin/asof"
}

# pack_guest: all of $work/guest as an archive, $work/guest.cpio, that follows the guest's own.
pack_guest() {
  cpio_archive "$work/guest" >"$work/guest.cpio"
}

# make_symfs GUEST: the files of this guest, for the analysis, as $out/symfs. No links out of it: a recording without
# build-ids (--switch-output) is packed with the files that are in there.
make_symfs() {
  local name
  mkdir "$out/symfs"
  for name in bin sbin lib lib64 usr; do
    cp -al "$1/$name" "$out/symfs/" 2>/dev/null || cp -a "$1/$name" "$out/symfs/"
  done
  cp -r "$work/guest/machine" "$out/symfs/"
}

# describe_run ARCHITECTURE: what was run, for tables (matrix).
describe_run() {
  jq -n --arg kernel "$kernel" --arg architecture "$1" --argjson cpus "$cpus" --argjson seed "$seed" \
    --arg options "${kaslr:+kaslr }${mitigations:+mitigations }${pti:+pti }${plugin_options:+$plugin_options }" \
    '{kernel: $kernel, architecture: $architecture, cpus: $cpus, seed: $seed, options: ($options | rtrimstr(" "))}' >"$out/run.json"
}

# judge RECORDING RESULTS [PACK]: the truth of one recording, its pack if it has none, and what asof says of it. One without trace is
# left out, which is no fault where `parts` is set; `judged` counts the others.
judge() {
  local status=0 pack=${3:-$2/capture.asof.tar.zst}
  mkdir -p "$2"
  "$build/tools/board/machine_truth" "$out/log" "$1" "$2/truth" >"$2/truth.txt" || status=$?
  if [ $status -eq 4 ]; then # of --switch-output, or perf left an event out that the kernel refused
    printf '      %s has no trace\n' "${1##*/}"
    [ -n "$parts" ] || verdict=3
    return 0
  fi
  [ $status -eq 0 ] || fail "there is no truth of $1: $2/truth.txt"
  judged=$((judged + 1))
  [ -n "${3:-}" ] || "$asof" pack "$1" --symfs "$out/symfs" --buildid-dir "$out/buildid" -q -o "$pack" || fail "asof cannot pack $1"
  "$asof" doctor "$pack" >"$2/doctor.txt" || true # its findings are no verdict
  "$asof" validate "$pack" -q --format json --truth "$2/truth" >"$2/verdict.json" || status=$?
  [ $status -eq 0 ] || [ $status -eq 3 ] || fail "asof validate ended with status $status"
  jq -r '.checks[] | "\(.result)  \(.topic)  \(.answer)", (.places[] | "      \(.)")' "$2/verdict.json" >"$2/verdict.txt"
  grep -E '^fail|^pass  truth' "$2/verdict.txt"
  [ $status -eq 0 ] || verdict=3
}

# judge_all KERNEL: every recording below $out. Sets `verdict`.
judge_all() {
  local folder recording dump image parts='' judged=0
  for image in "$out"/buildid/\[vdso\]/*/vdso; do # perf 7.3 records no build-id of it
    [ ! -e "$image" ] || cp "$image" "$out/symfs/vdso.so"
  done
  for folder in "$out"/*/record.txt; do
    folder=${folder%/*}
    printf '== %s %s: %s\n' "$1" "${folder##*/}" "$(grep -aE '^(perf record|record-)' "$folder/record.txt" | head -n 1)"
    if ! grep -q '^status 0' "$folder/record.txt"; then
      tail -n 5 "$folder/record.txt"
      verdict=3
      continue
    fi
    [ -z "$record_only" ] || continue
    for dump in "$folder"/jit-*.dump; do # where the recording says it was
      [ ! -e "$dump" ] || { mkdir -p "$out/symfs/tmp" && cp "$dump" "$out/symfs/tmp/"; }
    done
    if [ -e "$folder/perf.data" ]; then
      judge "$folder/perf.data" "$folder"
    elif [ -e "$folder/recording.asof.tar.zst" ]; then # a script packed it in the guest
      judge "$folder/recording/perf.data" "$folder" "$folder/recording.asof.tar.zst"
    elif [ -e "$folder/recording" ]; then
      judge "$folder/recording/perf.data" "$folder"
    else # --switch-output
      parts=yes judged=0
      for recording in "$folder/files/perf.data".*; do judge "$recording" "$folder/${recording##*/perf.data.}"; done
      [ $judged -gt 0 ] || fail "none of the files of $folder has trace"
      parts=
    fi
  done
}

# disk_words DEVICE: sets `disk`, QEMU's words for the guest's disk, on which it leaves an archive of its results.
disk_words() {
  truncate -s 64G "$out/results.tar" # takes only the space that is written
  disk=(-drive "if=none,id=out,format=raw,cache=unsafe,file=${out//,/,,}/results.tar" -device "$1,drive=out")
}

# boot LIMIT COMMAND...: runs the emulator until the guest switches itself off. Its console is $out/console.txt.
boot() {
  local limit=$1
  shift
  set +e
  setsid timeout --kill-after=5 "$limit" "$@" >"$out/console.txt" 2>"$out/emulator.txt" </dev/null &
  emulator=$!
  wait "$emulator"
  local status=$?
  set -e
  emulator=
  if grep -aq '^machine: done' "$out/console.txt"; then
    tar -C "$out" --no-same-owner -xf "$out/results.tar" || fail "the guest's results cannot be unpacked"
    rm "$out/results.tar"
    return
  fi
  tail -n 15 "$out/console.txt" "$out/emulator.txt" >&2
  [ $status -ne 124 ] || fail "the guest did not come to its end within $limit s"
  fail "the guest left no results (status $status)"
}

# End of a run, also an interrupted one: the emulator first, then its files.
emulator='' work='' memory=''
clean() {
  [ -z "$emulator" ] || kill -- "-$emulator" 2>/dev/null || true
  rm -rf ${work:+"$work"} ${memory:+"$memory"} ${out:+"$out/results.tar"}
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
