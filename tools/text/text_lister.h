// TextLister: disassembly of one range: as it was at an instant, or first of all and then every version of
// what changes, or the changes only.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "textstore/text_image.h"
#include "tools/disasm/disasm.h"
#include "tools/output/output.h"
#include "tools/text/text_places.h"

namespace asof {

class TextLister {
 public:
  // `mode`: bits of the code, 16, 32 or 64.
  TextLister(const TextStore& store, Syntax syntax, CodeMachine machine, int mode, Output& out)
      : store_(store), disassembler_(syntax, machine), mode_(mode), out_(out) {}

  void show(const TextPlace& place, const std::optional<Time>& time, bool diff);

 private:
  struct Line {
    Addr ip = 0;
    uint32_t size = 1;
    std::string text;  // bytes and disassembly
    OriginRef origin = kNoOrigin;
  };

  void header(const TextPlace& place, const std::string& what);
  std::string doubt(Time t) const;
  void print(std::string_view mark, const Line& line);
  Line line_at(const TextImage& image, size_t i);
  std::vector<Line> lines(const TextImage& image, AddrRange part);
  void print_image(const TextImage& image, const std::vector<Cell>& marked);
  void show_versions(const Cell& cell);
  void show_diff(const std::vector<Time>& times);

  const TextStore& store_;
  Disassembler disassembler_;
  int mode_;
  Output& out_;
  std::vector<Cell> cells_;
  AddrRange shown_, walk_;
};

}  // namespace asof
