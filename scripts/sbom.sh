#!/usr/bin/env bash
# Lists as CycloneDX (JSON, version 1.5) what a program is made of: the shared libraries that it loads, and what was
# compiled into it, with the Debian packages they are from and their versions. usage: scripts/sbom.sh PROGRAM VERSION
set -euo pipefail

program=$1 version=$2
# Headers and static libraries leave no trace in the program.
compiled_in=(libiberty-dev robin-map-dev libcli11-dev rapidjson-dev libprotozero-dev)

packages() {
  local library
  # dpkg knows files by their paths before /usr was merged, too.
  ldd "$program" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | while read -r library; do
    dpkg-query -S "$library" 2>/dev/null || dpkg-query -S "/usr$library" 2>/dev/null || dpkg-query -S "${library#/usr}" 2>/dev/null ||
      echo "unknown:$library: $library"
  done | cut -d: -f1 | sort -u
  printf '%s\n' "${compiled_in[@]}"
}

component() { # package
  local found
  found=$(dpkg-query -W -f='${Version}\t${Architecture}\t${source:Package}' "$1" 2>/dev/null) || return 0
  local number architecture source
  IFS=$'\t' read -r number architecture source <<<"$found"
  printf '    {"type": "library", "name": "%s", "version": "%s", "purl": "pkg:deb/debian/%s@%s?arch=%s", "properties": [{"name": "debian:source", "value": "%s"}]}' \
    "$1" "$number" "$1" "${number//+/%2B}" "$architecture" "$source"
}

printf '{\n  "bomFormat": "CycloneDX",\n  "specVersion": "1.5",\n  "version": 1,\n'
printf '  "metadata": {"component": {"type": "application", "name": "%s", "version": "%s"}},\n  "components": [\n' \
  "$(basename "$program")" "$version"
first=1
while read -r package; do
  line=$(component "$package")
  [ -n "$line" ] || continue
  [ $first = 1 ] || printf ',\n'
  first=0
  printf '%s' "$line"
done < <(packages)
printf '\n  ]\n}\n'
