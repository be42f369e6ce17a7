#!/usr/bin/env bash
# initrd.sh ROOT...: the file system of the guest for each unpacked root (root-6.1, ...), as a folder and as a cpio archive.
#
# STORE/guest-6.1/ has busybox, perf with its libraries, the modules that a guest loads; it is the --symfs of analysis.
# STORE/guest-6.1.cpio is its archive. A run appends another archive with its workload and scenario (pt, ete).
set -euo pipefail
# shellcheck source=tools/board/machine/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Loaded at the start: the way out for the results. At the host's disposal: what workloads load.
boot_modules=(virtio_blk virtio_pci virtio_mmio)
arm64_modules=(coresight coresight-etm4x coresight-trbe coresight-funnel coresight-replicator coresight-tmc)
test_modules=(dummy ifb nlmon tls test_bpf veth bridge crc7 xt_bpf)

# add_library ROOT GUEST FILE: what this file needs, from the root's own folder of libraries.
add_libraries() {
  local needed library
  needed=$(readelf -d "$3" 2>/dev/null | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
  for library in $needed; do
    [ -e "$2/usr/lib/$triplet/$library" ] && continue
    [ -e "$1/usr/lib/$triplet/$library" ] || continue # the loader's own name
    cp -L "$1/usr/lib/$triplet/$library" "$2/usr/lib/$triplet/"
    add_libraries "$1" "$2" "$2/usr/lib/$triplet/$library"
  done
}

# add_module GUEST NAME: with what it depends on before it; prints the order. Nothing for one that is built in or not there.
add_module() {
  local file to dependency
  file=$(find "$kernel_modules" \( -name "$2.ko" -o -name "$2.ko.*" -o -name "${2//_/-}.ko" -o -name "${2//_/-}.ko.*" \) | sed -n 1p)
  [ -n "$file" ] || return 0
  to=$1/usr/lib/modules/$kernel_release${file#"$kernel_modules"}
  to=${to%.xz}
  to=${to%.zst}
  [ ! -e "$to" ] || return 0
  mkdir -p "${to%/*}"
  case $file in
  *.xz) xz -dc "$file" >"$to" ;;
  *.zst) zstd -qdc "$file" >"$to" ;;
  *) cp "$file" "$to" ;;
  esac
  for dependency in $(grep -aoz '^depends=.*' "$to" | tr -d '\0' | sed 's/^depends=//; s/,/ /g'); do
    add_module "$1" "$dependency"
  done
  printf '%s\n' "${to#"$1"}"
}

make_guest() {
  local root=$1 name=guest-${1##*/root-} guest module
  triplet=x86_64-linux-gnu
  [[ $name != *-arm64 ]] || triplet=aarch64-linux-gnu
  [ -e "$machine_store/$name.cpio" ] && [ "$machine_store/$name.cpio" -nt "$machine_here/initrd.sh" ] &&
    [ "$machine_store/$name.cpio" -nt "$root/PACKAGES" ] && return
  kernel_of "$root"
  work=$machine_store/$name.tmp.$$
  guest=$work
  mkdir -p "$guest"/{proc,sys,dev,tmp,out,root,etc,usr/{bin,sbin,lib64,lib/$triplet,lib/modules}}
  for module in bin sbin lib lib64; do ln -s "usr/$module" "$guest/$module"; done
  cp -L "$root/usr/bin/perf" "$guest/usr/bin/"
  cp -L "$(find "$root/usr/bin/" -name busybox | sed -n 1p)" "$guest/usr/bin/busybox"
  add_libraries "$root" "$guest" "$guest/usr/bin/perf"
  if [ "$triplet" = x86_64-linux-gnu ]; then
    cp -L "$root/usr/lib64/ld-linux-x86-64.so.2" "$guest/usr/lib64/"
  else
    cp -L "$root/usr/lib/ld-linux-aarch64.so.1" "$guest/usr/lib/"
    boot_modules+=("${arm64_modules[@]}")
  fi
  for module in "${boot_modules[@]}"; do add_module "$guest" "$module"; done >"$guest/etc/boot-modules"
  for module in "${test_modules[@]}"; do add_module "$guest" "$module"; done >"$guest/etc/test-modules"
  printf '%s\n' "$kernel_release" >"$guest/etc/kernel"
  cpio_archive "$guest" >"$work.cpio"
  rm -rf "${machine_store:?}/$name"
  mv "$work" "$machine_store/$name"
  mv "$work.cpio" "$machine_store/$name.cpio"
  work=
}

work=
trap '[ -z "$work" ] || rm -rf "$work" "$work.cpio"' EXIT
trap 'exit 130' INT TERM HUP
for program in cpio readelf xz zstd; do
  command -v "$program" >/dev/null || fail "$program is missing (Debian: cpio, binutils, xz-utils, zstd)"
done
for root in "$@"; do make_guest "${root%/}"; done
