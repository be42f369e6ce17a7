// Calls that were added up as tables of SQLite, with their rows in the order in which `asof tables` writes them.
#pragma once
#include "textstore/result.h"
#include "tools/tables/call_totals.h"

struct sqlite3;

namespace asof {

// SQL that tells what the tables are joined with.
inline constexpr const char* kSumsRead = "SELECT id, name, kind, dso FROM functions";

// function_sums: cpu, time, function, version, calls, self_instructions, instructions, ns; by name, kind and file.
// edge_sums: cpu, time, caller, function, calls, ns; by name. Functions are functions.id of one of that name.
Result<void> write_sums(CallTotals& totals, sqlite3* db);

}  // namespace asof
