# Shared by tools/board/pt and tools/board/ete: the guest's programs, its start, its results. Sourced after lib.sh.
# shellcheck shell=bash disable=SC2154 # variables of the scripts

# guest_archive ARCHITECTURE MODES: workloads and scenario as an archive, $work/guest.cpio, that follows the guest's own.
guest_archive() {
  local compiler=cc into=$work/guest record=$machine_tree/tools/record flags
  [ "$1" != aarch64 ] || compiler=aarch64-linux-gnu-gcc
  flags=(-std=gnu11 -O2 -static -I"$machine_tree")
  command -v "$compiler" >/dev/null || fail "$compiler is missing (Debian: gcc, or gcc-aarch64-linux-gnu)"
  mkdir -p "$into/machine"
  cp "$machine_here/guest/init" "$into/"
  chmod +x "$into/init"
  cp "$machine_here"/guest/*.sh "$into/machine/"
  cp "$2" "$into/machine/modes"
  "$compiler" "${flags[@]}" -pthread "$machine_here"/guest/*.c "$record/toggle_btf.c" "$record/toggle_files.c" -o "$into/machine/work"
  "$compiler" "${flags[@]}" "$record"/toggle*.c -o "$into/machine/toggle"
  cpio_archive "$into" >"$work/guest.cpio"
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
  grep -aq '^machine: done' "$out/console.txt" && return
  tail -n 15 "$out/console.txt" "$out/emulator.txt" >&2
  [ $status -ne 124 ] || fail "the guest did not come to its end within $limit s"
  fail "the guest left no results (status $status)"
}

# End of a run, also an interrupted one: the emulator first, then its files.
emulator='' work='' memory=''
clean() {
  [ -z "$emulator" ] || kill -- "-$emulator" 2>/dev/null || true
  rm -rf ${work:+"$work"} ${memory:+"$memory"}
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
