// What `asof decode` prints: fields, kinds of records, filters. Names and letters are perf's where perf has
// them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "textstore/address.h"
#include "textstore/result.h"
#include "textstore/time.h"
#include "tools/disasm/disasm.h"
#include "tools/output/task_choice.h"

namespace asof {

enum Field : uint32_t {
  kFieldComm = 1 << 0,
  kFieldPid = 1 << 1,
  kFieldTid = 1 << 2,
  kFieldCpu = 1 << 3,
  kFieldTime = 1 << 4,
  kFieldIp = 1 << 5,
  kFieldSym = 1 << 6,
  kFieldSymoff = 1 << 7,
  kFieldDso = 1 << 8,
  kFieldInsn = 1 << 9,
  kFieldInsnlen = 1 << 10,
  kFieldDisasm = 1 << 11,
  kFieldFlags = 1 << 12,
  kFieldTextver = 1 << 13,  // the version of its text that an instruction had
  kFieldTextsrc = 1 << 14,  // where its bytes came from
  kFieldConf = 1 << 15,     // how sure that is
  kFieldSrcline = 1 << 16,
  kFieldInline = 1 << 17,  // functions that were inlined there
};
inline constexpr uint32_t kDefaultFields =
    kFieldComm | kFieldTid | kFieldCpu | kFieldTime | kFieldIp | kFieldSym | kFieldSymoff | kFieldDso;

// "ip,sym", or changes to the default: "+disasm,-comm".
Result<uint32_t> parse_fields(const std::string& text);

enum Kind : uint32_t {
  kKindInstructions = 1 << 0,  // i
  kKindBranches = 1 << 1,      // b
  kKindCalls = 1 << 2,         // c
  kKindReturns = 1 << 3,       // r
  kKindErrors = 1 << 4,        // e
  kKindTransactions = 1 << 5,  // x
  kKindPtwrite = 1 << 6,       // w
  kKindPower = 1 << 7,         // p
  kKindInterrupts = 1 << 8,    // I: Event Trace
  kKindPebs = 1 << 9,          // o: PEBS via PT
  kKindCycles = 1 << 10,       // --cycles
};
// perf's letters. A period after i ("i0", "i0ns", "i1i") is accepted when it means every instruction.
Result<uint32_t> parse_itrace(const std::string& text);

struct DecodeFormat {
  uint32_t fields = kDefaultFields;
  uint32_t kinds = kKindInstructions;
  bool nanoseconds = false;
  bool json = false;
  Syntax syntax = Syntax::kIntel;

  bool has(uint32_t field) const { return (fields & field) != 0; }
  bool wants(uint32_t kind) const { return (kinds & kind) != 0; }
  bool wants_flow() const { return wants(kKindBranches | kKindCalls | kKindReturns); }
};

struct Selection {
  TaskChoice tasks;
  std::vector<std::string> symbols, dsos;  // empty: all
  std::vector<AddrRange> addresses;
  TimeBounds time;

  bool by_place() const { return !symbols.empty() || !dsos.empty() || !addresses.empty(); }
};

// "A-B": both ends included, as in perf; hexadecimal.
Result<AddrRange> parse_address_range(const std::string& text);

}  // namespace asof
