#include "decoder/arm64_catalogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <optional>

#include "decoder/arm64_words.h"
#include "decoder/jump_table.h"

namespace asof {
namespace {

class SiteFinder {
 public:
  explicit SiteFinder(const KernelText& kernel) : kernel_(kernel) {}

  void take_table(const JumpTable& table) {
    for (size_t at = 0; at + arm64::kJumpEntrySize <= table.bytes.size(); at += arm64::kJumpEntrySize) {
      const auto code = static_cast<int32_t>(arm64::word_at(table.bytes, at));
      const auto target = static_cast<int32_t>(arm64::word_at(table.bytes, at + 4));
      const arm64::JumpEntry jump = arm64::jump_entry_at(table.begin + at, code, target);
      const auto branch = arm64::branch_word(jump.code, jump.target, false);
      if (branch && holds(jump.code, *branch)) sites_.push_back({jump.code, arm64::kNop, *branch});
    }
  }

  // Entries of functions: after a BTI, where there is one.
  void take_entries(Addr ftrace_caller, const Kallsyms& names) {
    for (const KernelSymbol& symbol : names.symbols()) {
      if (!symbol.is_code() || symbol.is_generated()) continue;
      for (const Addr first : {symbol.addr, symbol.addr + 4}) {
        const auto mov = word(first);
        const auto branch = arm64::branch_word(first + 4, ftrace_caller, true);
        if (mov == arm64::kMovX9Lr && branch && holds(first + 4, *branch))
          sites_.push_back({first + 4, arm64::kNop, *branch});
      }
    }
  }

  std::vector<PatchSite> finish() {
    std::sort(sites_.begin(), sites_.end(), [](const auto& a, const auto& b) { return a.addr < b.addr; });
    const auto same = [](const auto& a, const auto& b) { return a.addr == b.addr; };
    sites_.erase(std::unique(sites_.begin(), sites_.end(), same), sites_.end());
    return std::move(sites_);
  }

 private:
  std::optional<uint32_t> word(Addr addr) const {
    const auto* piece = addr % 4 == 0 ? kernel_.start()->text_at(range_of(addr, 4)) : nullptr;
    if (piece == nullptr) return std::nullopt;
    return arm64::word_at(piece->bytes, addr - piece->range.begin);
  }
  // A place that holds neither word is none: the text of init code is gone, and is no text any more.
  bool holds(Addr addr, uint32_t on) const {
    const auto now = word(addr);
    return now == arm64::kNop || now == on;
  }

  const KernelText& kernel_;
  std::vector<PatchSite> sites_;
};

}  // namespace

Catalogue find_patch_sites(const KernelText& kernel, const std::string& vmlinux, NoticeBook& notices) {
  if (kernel.start() == nullptr) {
    notices.info("I-TEXT-509", "catalogue",
                 "without a copy of kcore the places that may change are not known");
    return {};
  }
  SiteFinder finder(kernel);
  const auto table = find_jump_table(kernel, vmlinux);
  if (table) {
    finder.take_table(*table);
  } else {
    notices.info("I-TEXT-509", "catalogue",
                 "the kernel's jump table is neither in the copy of kcore nor in a vmlinux that was given: "
                 "jump labels "
                 "are not in the catalogue",
                 "give the vmlinux with its symbols: --vmlinux");
  }
  const Kallsyms* names = kernel.start()->kallsyms();
  const auto caller = names == nullptr ? std::nullopt : names->address("ftrace_caller");
  if (caller) finder.take_entries(*caller, *names);
  return {finder.finish(), table.has_value()};
}

void add_catalogue(const std::vector<PatchSite>& sites, const KernelText& kernel, Builder& builder) {
  const auto words = std::make_shared<std::deque<arm64::Word>>();
  for (const PatchSite& site : sites) {
    const auto* piece = kernel.start()->text_at(range_of(site.addr, 4));
    if (piece == nullptr) continue;
    const bool is_on = arm64::word_at(piece->bytes, site.addr - piece->range.begin) == site.on;
    words->push_back(arm64::word_bytes(is_on ? site.off : site.on));
    Layer layer{.range = range_of(site.addr, 4), .bytes = words->back()};
    layer.rank = kRankSnapshot;
    // One for each site, so that neighbours, which change alone, stay apart.
    layer.origin = builder.add_origin(
        {.kind = OriginKind::kRaw, .name = "catalogue of patch sites", .id = site.addr, .build_id = {}});
    builder.add_layer(layer);
  }
  builder.keep(words);
}

}  // namespace asof
