// Changes of text as lines of text, or as JSON lines (docs/usage.md lists their keys).
#pragma once
#include <string>

#include "decoder/model/capture.h"
#include "tools/disasm/disasm.h"
#include "tools/output/output.h"
#include "tools/text/text_changes.h"
#include "tools/text/text_places.h"

namespace asof {

class ChangePrinter {
 public:
  ChangePrinter(const Capture& capture, Syntax syntax, int mode, bool json, Output& out)
      : capture_(capture),
        disassembler_(syntax, code_machine(capture.machine)),
        mode_(mode),
        json_(json),
        out_(out) {}

  void history(const TextPlace& place, const std::vector<TextChange>& changes);
  void difference(Space space, Time from, Time to, const TextDifference& difference);

 private:
  struct Named {  // of an address at an instant
    std::string_view name, dso;
    uint64_t offset = 0;
  };
  Named named(Space space, Addr a, Time t) const;
  std::string code(std::span<const uint8_t> bytes, Addr at, Space space, Time t);
  std::string content(const Version* v, uint64_t held, AddrRange range, Space space, Time t);
  std::string origin(OriginRef ref) const;
  void change_line(const TextPlace& place, const TextChange& c);
  void change_json(const TextPlace& place, const TextChange& c);
  void difference_head(Space space, Time from, Time to, const TextDifference& d);
  void difference_site(Space space, Time from, Time to, const SiteDifference& p);
  void difference_symbol(const Named& symbol, Addr at, std::span<const SiteDifference> sites);

  const Capture& capture_;
  Disassembler disassembler_;
  int mode_;
  bool json_;
  Output& out_;
};

}  // namespace asof
