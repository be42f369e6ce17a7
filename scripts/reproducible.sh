#!/usr/bin/env bash
# [TARGET:FILE...]: builds the program twice, in folders of different names, and compares the bytes. By default those of the program and of
# the shared library; asof_arch:arch/libasof_arch.a takes a minute.
set -euo pipefail
cd "$(dirname "$0")/.."
# A cache may give the second build what the first one made.
export CCACHE_DISABLE=1
[ $# -gt 0 ] || set -- asof:asof asof_shared:api/libasof.so
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for name in one another; do
  mkdir "$work/$name"
  git archive HEAD | tar -C "$work/$name" -xf -
  (cd "$work/$name" && cmake --preset release -DASOF_TESTS=OFF) >"$work/$name.log"
  cmake --build "$work/$name/build/release" --target "${@%%:*}" >>"$work/$name.log" || { tail "$work/$name.log"; exit 1; }
done
for file in "${@#*:}"; do
  cmp "$work"/{one,another}/build/release/"$file"
  sha256sum "$work/one/build/release/$file" | sed "s|$work/one/||"
done
