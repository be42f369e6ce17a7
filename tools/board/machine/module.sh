#!/usr/bin/env bash
# module.sh KERNEL SOURCE FILE: builds the module SOURCE (one file in C) for the kernel of root-KERNEL into FILE, by the headers package
# of that kernel and this machine's compiler.
set -euo pipefail
# shellcheck source=tools/board/machine/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# wrap FILE PROGRAM: FILE becomes a script that runs this program of the headers package with the libraries of that Debian.
wrap() {
  local loader=$root/usr/lib64/ld-linux-x86-64.so.2
  rm -f "$1"
  printf '#!/bin/sh\nexec "%s" --library-path "%s" "%s" "$@"\n' "$loader" "$root/usr/lib/x86_64-linux-gnu" "$2" >"$1"
  chmod +x "$1"
}

# A folder for kbuild that stands for $headers/usr/src/linux-headers-RELEASE: the packages name themselves by their absolute paths,
# and their programs may need a newer C library than this machine's.
make_tree() {
  local entry program
  mkdir "$tree"
  for entry in "$source_tree"/* "$source_tree"/.config "$source_tree"/.kernelvariables; do
    case ${entry##*/} in
    Makefile) sed "s|KBUILD_OUTPUT=.*|KBUILD_OUTPUT=$tree|; s|^include /usr/|include $headers/usr/|" "$entry" >"$tree/Makefile" ;;
    scripts | tools) cp -a "$entry/" "$tree/${entry##*/}" ;;
    vmlinux) ;; # for BTF of the module, which nothing here needs
    *) ln -s "$entry" "$tree/" ;;
    esac
  done
  for program in scripts/basic/fixdep scripts/mod/modpost tools/objtool/objtool; do
    for entry in "$source_tree/$program.real-x86" "$source_tree/$program.real-lsb-64" "$source_tree/$program"; do
      [ ! -e "$entry" ] || break
    done
    wrap "$tree/$program" "$(readlink -f "$entry")"
  done
}

# The compiler without the options that only a newer one has.
make_compiler() {
  cat >"$work/cc" <<'SCRIPT'
#!/bin/bash
words=()
for word in "$@"; do
  case $word in
  -fmin-function-alignment=*) words+=("-falign-functions=${word#*=}") ;;
  *) words+=("$word") ;;
  esac
done
exec gcc "${words[@]}"
SCRIPT
  chmod +x "$work/cc"
}

[ $# -eq 3 ] || fail 'usage: module.sh KERNEL SOURCE FILE'
need make make gcc gcc strip binutils
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
root=$machine_store/root-$1 headers=$machine_store/headers-$1 tree=$work/tree
kernel_of "$root"
source_tree=$headers/usr/src/linux-headers-$kernel_release
[ -e "$source_tree/Makefile" ] || fail "there are no headers of $kernel_release in $headers (packages.sh headers-$1)"
make_tree
make_compiler
mkdir "$work/module"
name=$(basename "$2" .c)
cp "$2" "$work/module/"
printf 'obj-m := %s.o\n' "$name" >"$work/module/Makefile"
make -C "$tree" M="$work/module" CC="$work/cc" HOSTCC=gcc CROSS_COMPILE= modules >"$work/log" 2>&1 || {
  tail -n 20 "$work/log" >&2
  fail "$2 cannot be built for $kernel_release"
}
strip -g -o "$3" "$work/module/$name.ko"
