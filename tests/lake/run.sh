#!/bin/sh
# run.sh BUILD SOURCE: 77 (skipped) where node or the packages of package.json are missing.
here=$(dirname "$0")
if ! node -e 'process.exit(Number(process.versions.node.split(".")[0]) < 18 ? 1 : 0)' 2>/dev/null; then
  echo "SKIPPED: the test of Parquet files needs node 18 or later"
  exit 77
fi
if ! [ -d "$here/node_modules/@duckdb/node-api" ]; then
  echo "SKIPPED: no DuckDB (npm ci --prefix tests/lake)"
  exit 77
fi
exec node "$here/lake_test.mjs" "$@"
