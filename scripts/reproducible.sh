#!/usr/bin/env bash
# Builds the program twice, in folders of different names, and compares the bytes.
set -euo pipefail
# A cache may give the second build what the first one made.
export CCACHE_DISABLE=1
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for name in one another; do
  mkdir "$work/$name"
  git archive HEAD | tar -C "$work/$name" -xf -
  (cd "$work/$name" && cmake --preset release -DASOF_TESTS=OFF) >"$work/$name.log"
  cmake --build "$work/$name/build/release" --target asof asof_shared >>"$work/$name.log" || { tail "$work/$name.log"; exit 1; }
done
for file in asof api/libasof.so; do
  cmp "$work"/{one,another}/build/release/$file
  sha256sum "$work/one/build/release/$file" | sed "s|$work/one/||"
done
