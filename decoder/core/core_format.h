// The core of a plan: everything that opening a capture yields except the trace, parsed once for any number of
// processes. A header, sections side by side, and a table of them; docs/formats.md has the bytes. Readers map the
// file: of the text, which is most of it, they share the pages.
#pragma once
#include <cstdint>
#include <string_view>

#include "decoder/blocks/block_format.h"

namespace asof::core {

inline constexpr std::string_view kMagic{"asofcore", 8};
inline constexpr uint16_t kVersion = 4;
inline constexpr uint64_t kHeaderSize =
    40;  // magic, version, size of header, sections, identity, table, its hash
inline constexpr uint64_t kEntrySize = 32;  // of the table: kind, index, offset, size, hash
inline constexpr std::string_view kFileName = "core.asof";

enum class Section : uint32_t {
  kHead = 1,     // what is said once of the recording
  kTables = 2,   // tasks, programs, notices, counts
  kMachine = 3,  // x86::Config, arm64::Config
  kCode = 4,     // files and mappings of code, copies of memory, modules
  kSymbols = 5,
  kFiles = 6,        // that hold the trace
  kFrames = 7,       // CoreSight frames: where their sections are
  kExtents = 8,      // of all streams: name, CPU, thread, begin, end
  kStream = 9,       // one, by index
  kStore = 10,       // the text store
  kText = 11,        // bytes that it points to
  kFrameIndex = 12,  // of one group of frames, by index: where the bytes of its sources begin
};

using blocks::Source;
using blocks::Writer;

}  // namespace asof::core
