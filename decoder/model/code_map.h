// What a capture knows about its code besides the bytes: which files are mapped where (for source_lines.h),
// when bytes were copied out of memory, and when modules were present.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "textstore/address.h"
#include "textstore/origin.h"
#include "textstore/time.h"

namespace asof {

// An ELF file that code came from.
struct CodeFile {
  std::string path;      // on this machine
  std::string recorded;  // as the traced system named it
  std::string build_id;  // lower-case hex; empty: none
};

// The kernel without a file on this machine is recorded as "[kernel.kallsyms]_stext", as perf names its MMAP record: its
// addresses in a CodeMapping count from that symbol. Empty: any other file.
inline std::string_view absent_kernel_symbol(const CodeFile& file) {
  constexpr std::string_view kName = "[kernel.kallsyms]";
  if (!file.path.empty() || !file.recorded.starts_with(kName)) return {};
  return std::string_view(file.recorded).substr(kName.size());
}

// Where one is in memory.
struct CodeMapping {
  Space space = kKernelSpace;
  AddrRange range;
  Time from = kTimeMin, until = kTimeMax;
  uint32_t file = 0;   // index into CodeFileMap::files
  uint64_t slide = 0;  // address in memory less address in the file, modulo 2^64
  int rank = 0;        // where files overlap, the highest counts, then the latest
};

struct CodeFileMap {
  std::vector<CodeFile> files;
  std::vector<CodeMapping> mappings;
  // Trees of separate debug files: <dir>/.build-id/ab/cdef.debug, <dir>/<folder of the file>/<debug link>.
  std::vector<std::string> debug_dirs;
  // perf's caches: <dir>/.build-id/ab/cdef.../debug.
  std::vector<std::string> caches;
  bool debuginfod = false;  // ask servers for what is in none of these (debuginfod.h)
};

// Bytes that were read from memory, at an instant within `time`.
struct TextCopy {
  OriginKind kind = OriginKind::kKcore;
  std::string name;
  AddrRange range;
  TimeBounds time;
};

// A kernel module that was seen. It may have been present from `from` to `until`, and certainly was in
// `seen`.
struct ModuleLifetime {
  std::string name;
  AddrRange range;
  Time from = kTimeMin, until = kTimeMax;
  TimeBounds seen;
};

}  // namespace asof
