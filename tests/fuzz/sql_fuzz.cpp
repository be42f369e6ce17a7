// SQL of users: examined as before a query, on empty tables.
#include "tests/fuzz/fuzz.h"
#include "tools/query/sql_guard.h"

FUZZ_TARGET(sql) {
  const std::string sql(bytes.begin(), bytes.end());
  for (const auto detail : {asof::DetailTables::kNever, asof::DetailTables::kWhenNamed}) {
    const asof::QueryFacts facts = asof::examine(sql, detail);
    FUZZ_CHECK(facts.statements >= 0);
  }
}
