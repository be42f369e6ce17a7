#include "decoder/patch_sites/arm64_catalogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <optional>

#include "decoder/patch_sites/arm64_words.h"
#include "decoder/patch_sites/jump_table.h"

namespace asof {
namespace {

constexpr size_t kMostUnfitting = 10;     // one in this many entries of a table may hold neither of its words
constexpr uint32_t kKprobe = 0xd4200080;  // BRK #4
constexpr const char* kCallers[] = {"ftrace_caller", "ftrace_regs_caller"};

bool is_call(uint32_t word) { return word >> 26 == 0x25; }  // BL

class SiteFinder {
 public:
  explicit SiteFinder(const KernelText& kernel) : kernel_(kernel) {}

  // False, and nothing is taken: this is no table of the kernel that ran.
  bool take_table(const JumpTable& table) {
    std::vector<CatalogueSite> found;
    size_t fitting = 0;
    for (size_t at = 0; at + arm64::kJumpEntrySize <= table.bytes.size(); at += arm64::kJumpEntrySize) {
      const auto code = static_cast<int32_t>(arm64::word_at(table.bytes, at));
      const auto target = static_cast<int32_t>(arm64::word_at(table.bytes, at + 4));
      const arm64::JumpEntry jump = arm64::jump_entry_at(table.begin + at, code, target);
      const auto branch = arm64::branch_word(jump.code, jump.target, false);
      const auto now = word(jump.code);
      if (!now) continue;  // of a module, or of init code that is gone
      if (branch) found.push_back({jump.code, {arm64::kNop, *branch}, true});
      fitting += branch && (now == arm64::kNop || now == *branch) ? 1 : 0;
    }
    // A few sites hold the breakpoint of a kprobe.
    if (fitting == 0 || fitting < found.size() - found.size() / kMostUnfitting) return false;
    sites_.insert(sites_.end(), found.begin(), found.end());
    return true;
  }

  // Entries of functions: after a BTI, where there is one. Returns how many it took.
  size_t take_entries(const std::vector<Addr>& callers, const Kallsyms& names) {
    const size_t before = sites_.size();
    for (const KernelSymbol& symbol : names.symbols()) {
      if (!symbol.is_code() || symbol.is_generated()) continue;
      for (const Addr first : {symbol.addr, symbol.addr + 4}) {
        const auto now = word(first + 4);
        if (word(first) != arm64::kMovX9Lr || !now) continue;
        CatalogueSite site{first + 4, {arm64::kNop}, false};
        for (const Addr caller : callers) {
          if (const auto call = arm64::branch_word(first + 4, caller, true)) site.words.push_back(*call);
        }
        const bool fits =
            std::ranges::find(site.words, *now) != site.words.end() || is_call(*now) || *now == kKprobe;
        if (fits && site.words.size() > 1) sites_.push_back(std::move(site));
      }
    }
    return sites_.size() - before;
  }

  std::vector<CatalogueSite> finish() {
    std::ranges::stable_sort(sites_, {}, &CatalogueSite::addr);
    const auto again = std::ranges::unique(sites_, {}, &CatalogueSite::addr);
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
  std::vector<CatalogueSite> sites_;
};

}  // namespace

Catalogue find_patch_sites(const KernelText& kernel, const TextFile* vmlinux, bool has_trampolines,
                           NoticeBook* notices) {
  const auto report = [notices](std::string what, std::string help = {}) {
    if (notices != nullptr)
      notices->info(Code::kCatalogueWithoutJumpLabels, "catalogue", std::move(what), std::move(help));
  };
  if (kernel.start() == nullptr) {
    report("without a copy of kcore the sites that may change are not known");
    return {};
  }
  SiteFinder finder(kernel);
  Catalogue out;
  const auto table = find_jump_table(kernel, vmlinux);
  out.has_labels = table && finder.take_table(*table);
  if (!out.has_labels) {
    report(table
               ? "the jump table is not of the kernel that ran: the sites it names hold something else. "
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
  const bool entries = callers.empty() ? names != nullptr : finder.take_entries(callers, *names) != 0;
  out.has_entries = entries && !has_trampolines;
  if (names != nullptr && !out.has_entries) {
    report(has_trampolines
               ? "functions may call BPF trampolines from their entries, which is not in the catalogue"
               : "no function's entry looks as ftrace makes it: they are not in the catalogue");
  }
  out.sites = finder.finish();
  const auto begin = names == nullptr ? std::nullopt : names->address("_stext");
  const auto end = names == nullptr ? std::nullopt : names->address("_etext");
  if (begin && end && *begin < *end) out.text = {*begin, *end};
  return out;
}

void add_lost_labels(std::span<const CatalogueSite> sites, const KernelText& kernel, Builder& builder) {
  const auto words = std::make_shared<std::deque<arm64::Word>>();
  const OriginRef origin = builder.add_origin(
      {.kind = OriginKind::kRaw, .name = "catalogue of jump labels", .id = 0, .build_id = {}});
  for (const CatalogueSite& site : sites) {
    if (!site.is_label || kernel.start()->text_at(range_of(site.addr, 4)) == nullptr) continue;
    for (const uint32_t word : site.words) {
      words->push_back(arm64::word_bytes(word));
      builder.add_site({.range = range_of(site.addr, 4), .bytes = words->back(), .origin = origin});
    }
  }
  builder.keep(words);
}

void add_catalogue(std::span<const CatalogueSite> sites, const KernelText& kernel, Builder& builder) {
  const auto words = std::make_shared<std::deque<arm64::Word>>();
  for (const CatalogueSite& site : sites) {
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
