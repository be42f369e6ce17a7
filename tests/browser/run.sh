#!/bin/sh
# run.sh TEST.js BUILD SOURCE: 77 (skipped) where node is missing; the tests themselves check for browser and
# packages.
if ! node -e 'process.exit(Number(process.versions.node.split(".")[0]) < 18 ? 1 : 0)' 2>/dev/null; then
  echo "SKIPPED: $1 needs node 18 or later"
  exit 77
fi
test=$1
shift
exec node "$(dirname "$0")/$test" "$@"
