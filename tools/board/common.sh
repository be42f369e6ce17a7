# Shared by tools/board/x86 and tools/board/arm64: options, the kernel package, the image, and what to run.
# shellcheck shell=bash disable=SC2154 # here, tree, board, work: set by the scripts

usage() {
  cat <<USAGE
usage: $board [--tiny | --small | --full] [--seed N] [--out DIRECTORY] [--build DIRECTORY] [--kernel DEB]
       [--toggle PROGRAM] [--coarse] [--trim] [--keep] [--archive FILE]

Boots Debian's kernel on an emulated two-CPU board that changes its own text while both CPUs work, and writes what
executed as a capture: DIRECTORY/perf.data, DIRECTORY/truth (docs/boards.md). Then asof validate compares.
  --tiny, --small, --full   how much is done; small is the default
  --seed N      another order of system calls (default 1)
  --out         where to (default build/board/NAME); what is there is replaced
  --build       where asof and make_capture were built (default build/release)
  --kernel DEB  kernel package; without it, it is downloaded with apt-get into build/board
  --toggle      this program (a static build of tools/record/toggle) runs in the guest, too
  --coarse      no time in the trace but that of sync points
  --trim        kernel text of pages that matter only
  --archive     pack the capture into this .tar.xz, always the same bytes for the same capture
  --keep        keep the log of the emulator (DIRECTORY/log)
USAGE
}

fail() {
  printf '%s: %s\n' "$board" "$1" >&2
  exit 2
}

# need PROGRAM PACKAGE: need_done reports all that is missing at once.
missing=()
need() { command -v "$1" >/dev/null || missing+=("$1 (Debian package $2)"); }
need_done() {
  [ ${#missing[@]} -eq 0 ] && return
  printf '%s: missing:\n' "$board" >&2
  printf '  %s\n' "${missing[@]}" >&2
  exit 2
}

read_options() {
  plan=small seed=1 out='' build=$tree/build/release kernel='' toggle='' keep='' archive='' make_options=()
  while [ $# -gt 0 ]; do
    case $1 in
    --tiny | --small | --full) plan=${1#--} ;;
    --seed | --out | --build | --kernel | --toggle | --archive)
      [ $# -ge 2 ] || fail "$1 needs a value"
      declare -g "${1#--}=$2"
      shift
      ;;
    --coarse | --trim) make_options+=("$1") ;;
    --keep) keep=yes ;;
    -h | --help)
      usage
      exit 0
      ;;
    *)
      usage >&2
      exit 1
      ;;
    esac
    shift
  done
  [[ $seed =~ ^[0-9]+$ ]] || fail "--seed $seed is no number"
  out=${out:-$tree/build/board/$board-$plan}
  [ -x "$build/tools/board/make_capture" ] || fail "$build/tools/board/make_capture is not built: ninja -C $build make_capture asof"
}

# unpack_kernel META_PACKAGE: the Debian kernel that this package stands for, unpacked below build/board.
unpack_kernel() {
  local store=$tree/build/board package
  mkdir -p "$store"
  if [ -z "$kernel" ]; then
    package=$(apt-cache depends "$1" 2>/dev/null | awk '/Depends: *linux-image/ {print $2; exit}')
    [ -n "$package" ] || fail "apt knows no $1; for another architecture: dpkg --add-architecture, apt-get update"
    [[ $1 != *:* || $package == *:* ]] || package=$package:${1#*:}
    kernel=$(find "$store" -maxdepth 1 -name "${package%:*}_*.deb" | sort | tail -n 1)
    if [ -z "$kernel" ]; then
      (cd "$store" && apt-get -q download "$package") || fail "cannot download $package"
      kernel=$(find "$store" -maxdepth 1 -name "${package%:*}_*.deb" | sort | tail -n 1)
    fi
  fi
  kernel_files=$store/$(basename "$kernel" .deb)
  [ -d "$kernel_files" ] || dpkg-deb -x "$kernel" "$kernel_files"
}

# build_image CC: plugin and init, the init's file system with the modules it loads.
build_image() {
  cc -O2 -Wall -Wextra -fPIC -shared -fvisibility=hidden "$here/plugin.c" -o "$work/plugin.so"
  mkdir -p "$work/root"/{proc,sys,dev}
  "$1" -O2 -static -Wall -Wextra "$here"/guest/*.c -o "$work/root/init"
  find "$kernel_files/lib/modules" -name dummy.ko -exec cp {} "$work/root/" \;
  [ -z "$toggle" ] || cp "$toggle" "$work/root/toggle"
  (cd "$work/root" && find . -print0 | LC_ALL=C sort -z | cpio --null -o -H newc --quiet --reproducible) >"$work/initrd"
}

# run_board TIMEOUT COMMAND...: the emulator, whose console goes to console.txt.
run_board() {
  local limit=$1
  shift
  mkdir "$work/log"
  timeout "$limit" "$@" >"$work/console.txt" 2>&1 || true
  grep -a '^board:' "$work/console.txt" | tr -d '\r' || true
  grep -aq '^board: done' "$work/console.txt" ||
    { tail -n 20 "$work/console.txt" >&2; fail "the board did not come to its end within $limit s"; }
}

finish() {
  rm -rf "$out"
  mkdir -p "$out"
  "$build/tools/board/make_capture" "$work/log" "$out" "${make_options[@]}"
  if [ -n "$archive" ]; then
    tar -C "$out" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX -c . | xz -9e >"$archive"
  fi
  [ -z "$keep" ] || mv "$work/log" "$out/log"
  "$build/asof" validate "$out/perf.data" --truth "$out/truth"
}
