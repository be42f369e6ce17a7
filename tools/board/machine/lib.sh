# Shared by the validation machines (tools/board/pt, tools/board/ete): programs of the unpacked packages.
# shellcheck shell=bash
# They run by their own loader with their own libraries, so this machine's do not matter.

machine_here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
machine_tree=$(cd "$machine_here/../../.." && pwd)
machine_store=${MACHINE_STORE:-$machine_tree/build/machine}

fail() {
  printf '%s: %s\n' "${0##*/}" "$1" >&2
  exit 2
}

# need PROGRAM PACKAGE ...: says at once all that is missing.
need() {
  local programs=() packages=()
  while [ $# -gt 1 ]; do
    command -v "$1" >/dev/null || {
      programs+=("$1")
      packages+=("$2")
    }
    shift 2
  done
  [ ${#programs[@]} -eq 0 ] || fail "missing: ${programs[*]} (apt-get install ${packages[*]})"
}

# need_all COMPILER PACKAGE: for making a machine and judging its recordings.
need_all() {
  need apt-get apt dpkg-deb dpkg tar tar flock util-linux xz xz-utils zstd zstd cpio cpio readelf binutils jq jq "$@"
}

# in_root ROOT PROGRAM: sets `in_root_command`, the words that start this program of an unpacked root (amd64).
in_root() {
  local libraries=$1/usr/lib/x86_64-linux-gnu
  # shellcheck disable=SC2034 # for the caller
  in_root_command=("$1/usr/lib64/ld-linux-x86-64.so.2" --library-path "$libraries:$1/usr/lib" "$1/usr/bin/$2")
}

# qemu_command ARCHITECTURE: sets `qemu`, the words that start QEMU 11.1 for x86_64 or aarch64.
qemu_command() {
  in_root "$machine_store/qemu" "qemu-system-$1"
  # shellcheck disable=SC2034
  qemu=("${in_root_command[@]}" -L "$machine_store/qemu/usr/share/qemu" -L "$machine_store/qemu/usr/share/seabios"
    -nodefaults -no-user-config -display none -no-reboot)
}

# kernel_of ROOT: sets `kernel_image`, `kernel_release` and `kernel_modules`.
kernel_of() {
  local image
  image=$(find "$1/boot" "$1/usr/lib/modules" -maxdepth 2 \( -name 'vmlinuz-*' -o -name vmlinuz \) 2>/dev/null | sort | sed -n 1p) || true
  [ -n "$image" ] || fail "there is no kernel in $1"
  # shellcheck disable=SC2034
  kernel_image=$image
  kernel_release=$(find "$1/usr/lib/modules" -mindepth 1 -maxdepth 1 -printf '%f\n' | sort | sed -n 1p) || true
  # shellcheck disable=SC2034
  kernel_modules=$1/usr/lib/modules/$kernel_release
}

# cpio_archive FOLDER: an archive of it on standard output, the same bytes for the same files: the kernel walks through
# the headers of its initrd, so that another date in one of them is another number of instructions.
cpio_archive() {
  (
    cd "$1" || exit
    find . -exec touch -h -d @1704067200 {} +
    find . -print0 | LC_ALL=C sort -z | cpio --null -o -H newc --quiet --reproducible --owner=0:0
  )
}
