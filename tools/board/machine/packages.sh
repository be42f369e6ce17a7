#!/usr/bin/env bash
# Downloads and unpacks what the validation machines need. See usage(), and docs/boards.md.
# Needs no privilege: apt works in a configuration and with a state of its own, packages are unpacked and not installed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tree=$(cd "$here/../../.." && pwd)
store=$tree/build/machine

usage() {
  cat <<USAGE
usage: packages.sh [--store DIRECTORY] TARGET...

Unpacks packages of Debian's archive below DIRECTORY (default build/machine). A target that is there costs nothing.
  qemu                         QEMU 11.1 for x86-64 and arm64 (trixie-backports)            -> qemu/
  6.1 6.12 7.3                 kernel, modules, perf and its libraries, busybox (amd64)     -> root-6.1/ ...
  dtc                          the device tree compiler's tools                            -> dtc/
  bash bash-arm64              a static bash, for the guest of the recording scripts        -> bash/ ...
  6.1-arm64 6.12-arm64 7.3-arm64   the same for arm64                                       -> root-6.1-arm64/ ...
  headers-6.1 headers-6.12 headers-7.3   headers of the kernel in root-6.1 ..., to build a module   -> headers-6.1/ ...
USAGE
}

fail() {
  printf 'packages.sh: %s\n' "$1" >&2
  exit 2
}

# The mirror and the keyring of this machine's own apt sources.
find_mirror() {
  mirror=$({ cat /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list 2>/dev/null || true; } |
    awk '/^URIs:/ {print $2; exit} /^deb / {for (i = 2; i <= NF; ++i) if ($i ~ /:\/\//) {print $i; exit}}')
  mirror=${mirror:-http://deb.debian.org/debian}
  keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  [ -r "$keyring" ] || fail "$keyring is missing (Debian package debian-archive-keyring)"
}

# use_apt SUITES ARCHITECTURE: an apt that knows these suites and nothing of this machine. Sets APT_CONFIG.
use_apt() {
  local suites=$1 architecture=$2 suite
  local folder=$store/apt/${suites// /+}-$architecture
  mkdir -p "$folder"/{lists/partial,empty} "$store/debs/partial" "$store/apt/empty/partial"
  : >"$folder/status"
  for suite in $suites; do
    printf 'deb [arch=%s signed-by=%s] %s %s main\n' "$architecture" "$keyring" "$mirror" "$suite"
  done >"$folder/sources.list"
  cat >"$folder/apt.conf" <<CONF
#clear APT::Architectures;
APT::Architecture "$architecture";
APT::Architectures { "$architecture"; };
APT::Default-Release "${suites##* }";
APT::Install-Recommends "false";
APT::Sandbox::User "";
Acquire::Languages "none";
Acquire::Retries "3";
Dir::State "$folder";
Dir::State::lists "$folder/lists";
Dir::State::status "$folder/status";
Dir::State::extended_states "$folder/extended_states";
Dir::Cache "$folder";
Dir::Cache::archives "$store/debs";
Dir::Etc::sourcelist "$folder/sources.list";
Dir::Etc::sourceparts "$folder/empty";
Dir::Etc::preferences "$folder/preferences";
Dir::Etc::preferencesparts "$folder/empty";
Dir::Log "$folder";
CONF
  # What the machine's own configuration does after apt's work (removing downloads, for one) must not happen here.
  cat >>"$folder/apt.conf" <<'CONF'
#clear DPkg::Post-Invoke;
#clear DPkg::Pre-Invoke;
#clear DPkg::Pre-Install-Pkgs;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear Dir::Cache::pkgcache;
#clear Dir::Cache::srcpkgcache;
CONF
  export APT_CONFIG=$folder/apt.conf
  [ -e "$folder/updated" ] && return
  run_apt "$folder/log" apt-get -q update || fail "cannot read the package lists of $suites from $mirror: $folder/log"
  touch "$folder/updated"
}

# run_apt LOG COMMAND...: apt's output only matters when it fails.
run_apt() {
  local log=$1
  shift
  "$@" >"$log" 2>&1 || { tail -n 5 "$log" >&2; return 1; }
}

# kernel_packages ARCHITECTURE: the packages with the kernel itself and its modules. The kernel's meta package and
# linux-image of 7.x only name them.
kernel_packages() {
  local queue=("linux-image-$1") found=() package next depends
  while [ ${#queue[@]} -gt 0 ]; do
    package=${queue[0]}
    queue=("${queue[@]:1}")
    depends=$(apt-cache show --no-all-versions "$package" 2>/dev/null | sed -n 's/^\(Pre-\)\?Depends: //p' | sed 's/ *([^)]*)//g; s/[,|] */\n/g' |
      grep -E '^linux-(image|binary|modules)-[0-9]') || true
    [[ $package =~ ^linux-(image|binary|modules)-[0-9] ]] && found+=("$package")
    for next in $depends; do
      [[ " ${queue[*]} ${found[*]} " == *" $next "* ]] || queue+=("$next")
    done
  done
  printf '%s\n' "${found[@]}"
}

# header_packages KERNEL: the headers of the kernel that is unpacked, and the programs to build a module with them.
header_packages() {
  local release
  release=$(find "$store/root-$1/usr/lib/modules" -mindepth 1 -maxdepth 1 -printf '%f\n' | sort | sed -n 1p)
  printf 'linux-headers-%s\n' "$release"
  apt-cache show --no-all-versions "linux-headers-$release" 2>/dev/null | sed -n 's/^Depends: //p' | sed 's/ *([^)]*)//g; s/[,|] */\n/g' |
    grep -E '^linux-(headers|kbuild)-'
}

# unpack NAME DEB...: into a temporary folder that gets its name when it is complete.
unpack() {
  local name=$1 deb
  shift
  work=$store/$name.tmp.$$
  mkdir -p "$work"/usr/{bin,sbin,lib,lib64}
  for deb in bin sbin lib lib64; do ln -s "usr/$deb" "$work/$deb"; done # a package of bookworm may have either
  for deb in "$@"; do
    dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$work" --keep-directory-symlink --no-same-owner --no-same-permissions \
      --exclude=./usr/share/doc --exclude=./usr/share/locale --exclude=./usr/share/man --exclude=./usr/share/info ||
      fail "cannot unpack $deb"
  done
  for deb in "$@"; do basename "$deb" .deb; done | sort >"$work/PACKAGES"
  chmod -R u+rwX "$work"
  rm -rf "${store:?}/$name"
  mv "$work" "$store/$name"
  work=
}

# download OPTION-OR-PACKAGE...: resolves, downloads what is missing, and sets `debs` to the files.
download() {
  local list=$store/apt/list.$$ uri file size sum
  # With an empty cache, for apt leaves out what it has.
  apt-get -qq --print-uris -o "Dir::Cache::archives=$store/apt/empty" "$@" >"$list" 2>"$list.err" || { cat "$list.err" >&2; fail "apt cannot resolve: $*"; }
  run_apt "$store/apt/download.log" apt-get -q -y --download-only "$@" ||
    fail "cannot download; run it again, what is there is kept ($store/apt/download.log)"
  # shellcheck disable=SC2034 # fields of the line
  while read -r uri file size sum; do
    [[ $uri == \'* ]] || continue
    [ -s "$store/debs/$file" ] || fail "$file was not downloaded"
    debs+=("$store/debs/$file")
  done <"$list"
  rm -f "$list" "$list.err"
}

make_target() {
  local target=$1 version=${1%-arm64} architecture=amd64 suites debs=() kernel packages
  [ "$target" = "$version" ] || architecture=arm64
  case ${version#headers-} in
  6.1 | bash) suites=bookworm ;;
  6.12 | dtc) suites=trixie ;;
  7.3 | qemu) suites='trixie trixie-backports' ;;
  *) usage >&2; fail "there is no target $target" ;;
  esac
  local name=root-$target
  [[ $target != qemu && $target != dtc && $version != bash && $target != headers-* ]] || name=$target
  [ -e "$store/$name/PACKAGES" ] && return
  [[ $target != headers-* ]] || [ -e "$store/root-${target#headers-}/PACKAGES" ] || fail "$target: unpack ${target#headers-} first"
  printf 'packages.sh: %s\n' "$target" >&2
  use_apt "$suites" "$architecture"
  if [ "$target" = qemu ]; then
    download install qemu-system-x86 qemu-system-arm seabios
  elif [ "$target" = dtc ]; then
    download install device-tree-compiler
  elif [ "$version" = bash ]; then
    download install bash-static
  elif [[ $target == headers-* ]]; then
    packages=$(header_packages "${target#headers-}")
    mapfile -t kernel <<<"$packages"
    download_alone "${kernel[@]}"
  else
    packages=$(kernel_packages "$architecture")
    [ -n "$packages" ] || fail "apt knows no kernel in $suites for $architecture"
    download install linux-perf busybox-static
    mapfile -t kernel <<<"$packages"
    [[ ${kernel[0]} == linux-image-$version* ]] ||
      fail "$suites has ${kernel[0]} and not $version any more: packages.sh must be adapted"
    download_alone "${kernel[@]}"
  fi
  unpack "$name" "${debs[@]}"
}

# download_alone PACKAGE...: these files and nothing that they depend on.
download_alone() {
  local package file
  for package in "$@"; do
    file=$(apt-cache show --no-all-versions "$package" | sed -n 's/^Filename: //p')
    file=$(basename "$file")
    if ! compgen -G "$store/debs/${package}_*.deb" >/dev/null; then
      local into=$store/debs/partial.$$
      mkdir -p "$into"
      (cd "$into" && run_apt "$store/apt/download.log" apt-get -q download "$package") || fail "cannot download $package ($store/apt/download.log)"
      mv "$into"/*.deb "$store/debs/"
      rmdir "$into"
    fi
    debs+=("$(compgen -G "$store/debs/${package}_*.deb" | sort -V | tail -n 1)")
  done
}

work=
clean() { rm -rf ${work:+"$work"} "$store/debs/partial.$$" "$store/apt/list.$$" "$store/apt/list.$$.err"; }

targets=()
while [ $# -gt 0 ]; do
  case $1 in
  --store)
    [ $# -ge 2 ] || fail "--store needs a value"
    store=$2
    shift
    ;;
  -h | --help)
    usage
    exit 0
    ;;
  -*)
    usage >&2
    exit 1
    ;;
  *) targets+=("$1") ;;
  esac
  shift
done
[ ${#targets[@]} -gt 0 ] || { usage >&2; exit 1; }
for program in apt-get dpkg-deb tar xz flock; do
  command -v "$program" >/dev/null || fail "$program is missing"
done
mkdir -p "$store/apt"
store=$(cd "$store" && pwd) # apt takes a relative path from its own folder
exec 9>"$store/lock"
flock -n 9 || { printf 'packages.sh: waiting for another one\n' >&2; flock 9; }
trap clean EXIT
trap 'exit 130' INT TERM HUP
find_mirror
for target in "${targets[@]}"; do make_target "$target"; done
