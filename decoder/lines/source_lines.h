// SourceLines: file and line of an instruction, and the functions inlined there, from DWARF. The file is the one whose code ran, or its
// separate debug file, which is found by build-id or .gnu_debuglink as gdb does (gdb manual, "Separate Debug
// Files"); for the kernel, vmlinux, moved to where the recording says the kernel was (KASLR). Bytes never
// come from here. Servers are asked for what is in none of these places where CodeFileMap::debuginfod says so.
//
// Look-ups are cached, and what is read is bounded: a file whose DWARF is damaged, or larger than any real
// one, gives no lines and a notice.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "decoder/model/capture.h"

namespace asof {

class DwarfLines;

struct SourceLine {
  std::string_view file;  // as the compiler wrote it, with its folder; lives as long as the SourceLines
  uint32_t line = 0;      // 0: unknown
  uint32_t column = 0;    // 0: unknown
  explicit operator bool() const { return line != 0; }
};

// A function and a line in it. Names are as the capture's symbols are shown.
struct SourceFrame {
  std::string function;  // empty: not known
  SourceLine line;
  bool inlined = false;
};

// Not thread-safe: one for each thread.
class SourceLines {
 public:
  explicit SourceLines(const Capture& capture);
  ~SourceLines();
  SourceLines(SourceLines&&) noexcept;

  // Of the instruction at `a` in a space, as of `t`. Empty where no file is known to be mapped there then, or
  // it has nothing about this address.
  SourceLine at(Space space, Addr a, Time t);
  // The functions there, as addr2line -i has them: innermost first, each other one at the line of the call that was
  // inlined; the last was not inlined. Empty where no function is known. Valid until the next call.
  std::span<const SourceFrame> frames_at(Space space, Addr a, Time t);

  // Where code is in its file (CodeFileMap::files), as linked. Nothing: no file is known to be there, or only the build-id
  // of the kernel's.
  struct Place {
    uint32_t file = 0;
    uint64_t address = 0;
  };
  std::optional<Place> place_of(Space space, Addr a, Time t) const;
  // Also in the kernel's file, if one with its build-id and debug information is found.
  std::optional<Place> place_with_lines(Space space, Addr a, Time t);
  // Everything a file's debug information has; nullptr: it has none. Lives as long as this.
  DwarfLines* lines_of(uint32_t file);

  // What could not be read: files without debug information (I-TEXT-207), with damaged one (E-TEXT-208).
  // Each is reported once.
  std::vector<Notice> take_notices();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace asof
