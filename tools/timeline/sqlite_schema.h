// Tables of `asof query` and of timelines in SQLite. What the columns mean: docs/tables.md.
#pragma once
#include <array>
#include <cstddef>
#include <string>

namespace asof {

// PRAGMA user_version: grows when a column gets another meaning or is gone. 0: version 0.1.0.
inline constexpr int kSchemaVersion = 1;

struct SqliteTable {
  const char* name;
  const char* columns;
  int count;
};
enum SqliteTableId : size_t {
  kTracks,
  kFunctions,
  kCalls,
  kRuns,
  kGaps,
  kEvents,
  kPokes,
  kVisits,
  kLifetimes,
  kCounters,
  kVersions,
  kFunctionCycles,
  kBlockCycles,
  kCallCycles,
  kBlocks,  // from here on: detail
  kCode,
  kCodeInstructions
};
inline constexpr std::array<SqliteTable, 17> kTables{{
    {"tracks", "id INTEGER PRIMARY KEY, kind TEXT, cpu INT, pid INT, tid INT, name TEXT", 6},
    {"functions",
     "id INTEGER PRIMARY KEY, name TEXT, kind TEXT, dso TEXT, begin INT, size INT, versions INT, bpf_id INT, "
     "bpf_tag TEXT, linkage_name TEXT",
     10},
    {"calls",
     "id INTEGER PRIMARY KEY, parent INT, track INT, function INT, begin INT, end INT, instructions INT, "
     "self_instructions INT, entry INT, call_site INT, flags TEXT, version INT, source TEXT, confidence "
     "TEXT, "
     "cpu INT, depth INT",
     16},
    {"runs", "cpu INT, pid INT, tid INT, comm TEXT, begin INT, end INT, flags TEXT", 7},
    {"gaps",
     "cpu INT, tid INT, begin INT, end INT, family TEXT, code TEXT, reason TEXT, ip INT, resume_ip INT, "
     "bytes INT, file_offset INT, flags TEXT",
     12},
    {"events", "cpu INT, tid INT, time INT, kind TEXT, ip INT, a INT, b INT", 7},
    {"pokes",
     "id INTEGER PRIMARY KEY, time INT, address INT, symbol TEXT, mechanism TEXT, action TEXT, bytes TEXT, "
     "begin INT, end INT, breakpoints INT",
     10},
    {"poke_visits", "poke INT, cpu INT, last_old INT, first_new INT, breakpoints INT", 5},
    {"text_lives",
     "kind TEXT, name TEXT, address INT, size INT, begin INT, end INT, bpf_id INT, bpf_tag TEXT, seen_from "
     "INT, seen_until INT",
     10},
    {"counters", "kind TEXT, cpu INT, time INT, value REAL", 4},
    {"text_versions",
     "address INT, size INT, version INT, begin INT, end INT, bytes BLOB, source TEXT, symbol TEXT, certain "
     "INT",
     9},
    {"function_cycles",
     "name TEXT, dso TEXT, cycles_least INT, cycles_most INT, instructions_least INT, instructions_most INT",
     6},
    {"block_cycles",
     "address INT, symbol TEXT, size INT, instructions INT, source TEXT, cycles_least INT, cycles_most INT, "
     "instructions_least INT, instructions_most INT",
     9},
    {"call_cycles", "caller TEXT, callee TEXT, calls INT, cycles_least INT, cycles_most INT", 5},
    {"blocks",
     "id INTEGER PRIMARY KEY, cpu INT, tid INT, call INT, time_lo INT, time_hi INT, code INT, first INT, "
     "branch TEXT, from_ip INT, to_ip INT, confidence TEXT",
     12},
    {"code",
     "id INTEGER PRIMARY KEY, address INT, symbol TEXT, size INT, instructions INT, bytes BLOB, source TEXT",
     7},
    {"code_instructions",
     "code INT, number INT, address INT, bytes TEXT, text TEXT, file TEXT, line INT, inlined TEXT, PRIMARY "
     "KEY "
     "(code, number)",
     8},
}};
// Every executed instruction and branch would repeat what code_instructions has once for each.
inline constexpr const char* kViews =
    "CREATE VIEW call AS SELECT calls.*, functions.name AS name, functions.kind AS kind, tracks.name AS "
    "track_name FROM calls JOIN functions ON functions.id = calls.function JOIN tracks ON tracks.id = "
    "calls.track;";
inline constexpr const char* kDetailViews =
    "CREATE VIEW instructions AS SELECT blocks.first + i.number AS id, blocks.id AS block, blocks.cpu, "
    "blocks.tid, blocks.call, blocks.time_lo, blocks.time_hi, i.address, i.bytes, i.text, i.file, i.line, "
    "i.inlined, "
    "code.symbol AS block_symbol, code.source, blocks.confidence FROM blocks JOIN code ON code.id = "
    "blocks.code JOIN code_instructions i ON i.code = blocks.code;"
    "CREATE VIEW branches AS SELECT id AS block, cpu, tid, call, time_lo, time_hi, branch AS kind, from_ip, "
    "to_ip, confidence FROM blocks WHERE to_ip IS NOT NULL;";
struct SqliteIndex {
  const char* name;
  const char* on;
  bool detail;
};
// In the order in which they are made: of two that serve a query alike SQLite takes one by it.
inline constexpr std::array<SqliteIndex, 11> kIndices{
    {{"calls_function", "calls(function)", false},
     {"calls_parent", "calls(parent)", false},
     {"calls_track", "calls(track, begin)", false},
     {"pokes_address", "pokes(address)", false},
     {"text_versions_address", "text_versions(address)", false},
     {"blocks_time", "blocks(cpu, time_lo)", true},
     {"blocks_code", "blocks(code)", true},
     {"blocks_call", "blocks(call)", true},
     {"blocks_branch", "blocks(from_ip, to_ip) WHERE to_ip IS NOT NULL", true},
     {"code_instructions_address", "code_instructions(address)", true},
     {"code_instructions_line", "code_instructions(file, line)", true}}};
inline std::string create_index(const SqliteIndex& index) {
  return std::string("CREATE INDEX ") + index.name + " ON " + index.on;
}
}  // namespace asof
