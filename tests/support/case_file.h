// CaseFile: one row of the matrix of live-text situations as a text file: program, copies, records, trace of
// each CPU, and the correct decoding. Syntax: tests/README.md, section "Cases".
#pragma once
#include <array>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "arch/arch.h"
#include "tests/support/case_program.h"
#include "textstore/time.h"

namespace asof::test {

inline constexpr Time kCaseBase = 1'000'000'000;  // perf time, and TSC, of a case's time 0

struct CaseEvent {
  enum class Kind : uint8_t {
    kPoke,
    kKsymbol,
    kLoad,
    kUnload,
    kLost,
    kImage,
    kWatch,
    kRecord,
    kMap,
    kSwitch
  };
  Kind kind = Kind::kPoke;
  bool at_start = false;  // synthesised by the tool: no time
  Time time = 0;
  unsigned ring = 1;
  std::string name;  // of a poke or symbol
  Addr addr = 0;
  std::vector<CaseInsn> old_insns, new_insns;
  uint32_t length = 0;  // kKsymbol, kMap
  uint16_t type = 1;    // of KSYMBOL; record type of kRecord; type word of kWatch
  uint16_t misc = 0;    // kRecord
  bool unregister = false;
  uint64_t number = 0;             // program id, lost records, protection, process
  std::vector<std::string> texts;  // kImage, kWatch, kMap
  std::vector<uint8_t> body;       // kRecord
};

struct CasePatch {
  Addr addr = 0;
  std::vector<uint8_t> bytes;
};

// What a copy of kcore holds: the texts as assembled, with pokes up to `time`, then patched.
struct CaseCopy {
  bool present = true;
  Time time = kTimeMin;
  std::vector<CasePatch> patches{};
};

struct CasePacket {
  std::string kind;
  std::vector<std::string> args;
  int line = 0;
};

// One expected result: an instruction, or a gap.
struct CaseWant {
  std::string text{};  // for messages
  std::string gap{};   // code; empty: an instruction
  Addr ip = 0;
  std::vector<uint8_t> bytes{};
  Confidence confidence = Confidence::kCertain;
  std::string origin{};  // empty: not checked. Of a gap: a word in its reason
};

// A query to the text store: all contents possible at an instant.
struct CaseQuery {
  std::string text;
  Time time = 0;
  Addr addr = 0;
  std::vector<std::vector<uint8_t>> contents;  // an empty entry: unknown
};

// Options of cases of arm64.
struct CaseArm64 {
  bool return_stack = false;
  bool counter_unknown = false;  // no record says what timestamps count
  Time counter_offset = 0;       // of the timestamps relative to perf's clock
  bool big_endian = false;       // the session's byte order; text is always little-endian
};

struct CaseFile {
  std::string name, row;  // of the file without ".case"; X05
  CaseProgram program;
  CaseArm64 arm64;
  Time clock_error = 0;
  Time trace_start = kCaseBase;
  Addr kcore_split = 0;  // address at which kcore has two segments; 0: none
  bool compressed = false;
  bool data_files = false;  // a file of records for each ring
  bool no_poke_attr = false;
  uint32_t cpus = 4;             // online, by the recording; four have rings. 0: not stated
  uint64_t more_attr_flags = 0;  // of the side-band's event
  uint64_t max_nonturbo = 0;     // the ratio of the TSC to the bus; 0: unknown
  bool catalogue = false;        // decoded with --catalogue
  uint64_t pt_config = 0;        // bits of the trace's event that differ from the usual ones
  bool runs_back = false;        // the times of a trace may decrease
  CaseCopy start, end{.present = false};
  std::vector<CaseEvent> events;
  std::map<unsigned, std::vector<CasePacket>> traces;
  std::map<unsigned, std::vector<CaseWant>> wants;
  std::vector<CaseQuery> queries;
  std::vector<std::string> notices;

  // Bytes of a text as memory had them at `t`.
  std::vector<uint8_t> memory(const CaseText& text, Time t) const;
};

// Time in microseconds to perf time: "100", "100.5", "100+0.25*3".
Time case_time(std::string_view word);
// Variants of a file ("" when it names none).
std::vector<std::string> case_variants(const std::filesystem::path& path);
// Throws CaseError.
CaseFile read_case(const std::filesystem::path& path, const std::string& variant);

}  // namespace asof::test
