// What is specific to cases of arm64 ("machine arm64"): A64 instructions, ETMv4 packets, the CoreSight part
// of a perf.data. Syntax: tests/README.md, section "Cases of arm64".
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/support/case_trace.h"
#include "tests/support/perf_data_writer.h"

namespace asof::test {

// Bytes of the instruction `words` at `at`; nullopt: there is no such instruction. Throws CaseError.
std::optional<std::vector<uint8_t>> encode_arm64(const CaseProgram& program, Addr at,
                                                 const std::string& words);
// Sets one of the options of arm64; false: it is not one.
bool arm64_option(CaseArm64& out, const std::vector<std::string>& words);

CaseTrace encode_arm64_trace(const CaseFile& c, std::span<const CasePacket> packets);

AttrSpec arm64_attr(const CaseFile& c);
std::vector<uint64_t> arm64_trace_units(const CaseFile& c, unsigned cpus);  // AUXTRACE_INFO after its type
constexpr uint32_t kCsEtmInfo = 3;
constexpr uint64_t kAuxFlagRaw = 0x100;  // PERF_AUX_FLAG_CORESIGHT_FORMAT_RAW
// The trace as a formatter would write it to memory.
std::vector<uint8_t> arm64_frames(unsigned cpu, std::span<const uint8_t> trace);

}  // namespace asof::test
