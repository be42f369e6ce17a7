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

constexpr size_t kMostUnfitting = 10;  // one in so many entries of a table may hold neither of its words
constexpr const char* kCallers[] = {"ftrace_caller", "ftrace_regs_caller"};

class SiteFinder {
 public:
  explicit SiteFinder(const KernelText& kernel) : kernel_(kernel) {}

  // False, and nothing is taken: this is no table of the kernel that ran.
  bool take_table(const JumpTable& table) {
    std::vector<PatchSite> found;
    size_t fitting = 0;
    for (size_t at = 0; at + arm64::kJumpEntrySize <= table.bytes.size(); at += arm64::kJumpEntrySize) {
      const auto code = static_cast<int32_t>(arm64::word_at(table.bytes, at));
      const auto target = static_cast<int32_t>(arm64::word_at(table.bytes, at + 4));
      const arm64::JumpEntry jump = arm64::jump_entry_at(table.begin + at, code, target);
      const auto branch = arm64::branch_word(jump.code, jump.target, false);
      const auto now = word(jump.code);
      if (!now) continue;  // of a module, or of init code that is gone
      if (branch) found.push_back({jump.code, {arm64::kNop, *branch}});
      fitting += branch && (now == arm64::kNop || now == *branch) ? 1 : 0;
    }
    // A few places hold the breakpoint of a kprobe.
    if (fitting == 0 || fitting < found.size() - found.size() / kMostUnfitting) return false;
    sites_.insert(sites_.end(), found.begin(), found.end());
    return true;
  }

  // Entries of functions: after a BTI, where there is one.
  void take_entries(const std::vector<Addr>& callers, const Kallsyms& names) {
    for (const KernelSymbol& symbol : names.symbols()) {
      if (!symbol.is_code() || symbol.is_generated()) continue;
      for (const Addr first : {symbol.addr, symbol.addr + 4}) {
        const auto now = word(first + 4);
        if (word(first) != arm64::kMovX9Lr || !now) continue;
        PatchSite site{first + 4, {arm64::kNop}};
        for (const Addr caller : callers) {
          if (const auto call = arm64::branch_word(first + 4, caller, true)) site.words.push_back(*call);
        }
        const bool fits = std::ranges::find(site.words, *now) != site.words.end();
        if (fits && site.words.size() > 1) sites_.push_back(std::move(site));
      }
    }
  }

  std::vector<PatchSite> finish() {
    std::ranges::stable_sort(sites_, {}, &PatchSite::addr);
    const auto again = std::ranges::unique(sites_, {}, &PatchSite::addr);
    sites_.erase(again.begin(), again.end());
    return std::move(sites_);
  }

 private:
  std::optional<uint32_t> word(Addr addr) const {
    const auto* piece = addr % 4 == 0 ? kernel_.start()->text_at(range_of(addr, 4)) : nullptr;
    if (piece == nullptr) return std::nullopt;
    return arm64::word_at(piece->bytes, addr - piece->range.begin);
  }
  const KernelText& kernel_;
  std::vector<PatchSite> sites_;
};

}  // namespace

Catalogue find_patch_sites(const KernelText& kernel, const TextFile* vmlinux, NoticeBook& notices) {
  if (kernel.start() == nullptr) {
    notices.info("I-TEXT-509", "catalogue",
                 "without a copy of kcore the places that may change are not known");
    return {};
  }
  SiteFinder finder(kernel);
  Catalogue out;
  const auto table = find_jump_table(kernel, vmlinux);
  const bool fits = table && finder.take_table(*table);
  if (!fits) {
    notices.info(
        "I-TEXT-509", "catalogue",
        table ? "the jump table is not of the kernel that ran: the places it names hold something else. "
                "Jump labels are not in the catalogue"
              : "the kernel's jump table is neither in the copy of kcore nor in a vmlinux with the recorded "
                "build-id: jump labels are not in the catalogue",
        "give the vmlinux with its symbols: --vmlinux");
  }
  const Kallsyms* names = kernel.start()->kallsyms();
  std::vector<Addr> callers;
  for (const char* name : kCallers) {
    if (const auto at = names == nullptr ? std::nullopt : names->address(name)) callers.push_back(*at);
  }
  if (!callers.empty()) finder.take_entries(callers, *names);
  out.sites = finder.finish();
  const auto begin = names == nullptr ? std::nullopt : names->address("_stext");
  const auto end = names == nullptr ? std::nullopt : names->address("_etext");
  if (fits && begin && end) out.complete = {*begin, *end};
  return out;
}

void add_catalogue(const std::vector<PatchSite>& sites, const KernelText& kernel, Builder& builder) {
  const auto words = std::make_shared<std::deque<arm64::Word>>();
  for (const PatchSite& site : sites) {
    const auto* piece = kernel.start()->text_at(range_of(site.addr, 4));
    if (piece == nullptr) continue;
    const uint32_t now = arm64::word_at(piece->bytes, site.addr - piece->range.begin);
    // One for each site, so that neighbours, which change alone, stay apart.
    const OriginRef origin = builder.add_origin(
        {.kind = OriginKind::kRaw, .name = "catalogue of patch sites", .id = site.addr, .build_id = {}});
    for (const uint32_t word : site.words) {
      if (word == now) continue;
      words->push_back(arm64::word_bytes(word));
      builder.add_layer(
          {.range = range_of(site.addr, 4), .bytes = words->back(), .rank = kRankSnapshot, .origin = origin});
    }
  }
  builder.keep(words);
}

}  // namespace asof
