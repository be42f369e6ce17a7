// Text that the kernel generates while it runs: BPF programs, their trampolines and dispatchers, ftrace
// trampolines, kprobe pages. KSYMBOL records give lifetimes of address ranges; bytes come from BPF_PROG_INFO,
// a copy of kcore whose kallsyms had the symbol, a watcher, or TEXT_POKE installs. A range that no source has
// bytes of is covered by an unknown layer. Facts about order and reuse: docs/live-text.md, sections on BPF,
// kprobes and trampolines.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "decoder/kernel_text/kernel_text.h"
#include "decoder/kernel_text/kernel_text_watch.h"
#include "decoder/model/capture.h"
#include "decoder/sideband/sideband.h"
#include "textstore/builder.h"
#include "textstore/lost_index.h"

namespace asof {

// One address range from the registration of its symbol to its end.
struct CodeLifetime {
  AddrRange range;
  Time from = kTimeMin;
  Time until = kTimeMax;
  bool soft = false;  // ended by an unregister: may still run for a grace period
  bool exact = true;  // false: the record's length is an upper bound (trampolines always say one page)
  uint16_t type = 0;  // KsymbolFact::kBpf, kOutOfLine
  std::string name;
  uint32_t bpf_id = 0;  // 0: none known
  const BpfImage::Function* image = nullptr;
  bool guessed = false;       // the image matches it by tag, address and length; no load confirms it
  Time loaded = kTimeMin;     // of the BPF_EVENT, where there is one
  Time displaced = kTimeMax;  // last instant before another lifetime takes (part of) the range
  Time doubt = kTimeMax;      // from here on other code may be there, though no record says so
};

// KSYMBOL records to lifetimes. A register over an open lifetime means that its unregister was lost; an
// unregister without a register, that it is older than the recording, or that its register was lost. Reported
// as E-SIDE-401, I-SIDE-402.
std::vector<CodeLifetime> code_lifetimes(std::span<const KsymbolFact> symbols, const std::string& where,
                                         NoticeBook& notices);

// All KSYMBOL records, in order of time, and one made up for each function of an image whose program was
// loaded without one (E-SIDE-403). `losses` gets an instant for each load whose register is missing.
std::vector<KsymbolFact> announcements(const SideBand& side, std::span<const BpfImage> images,
                                       const std::string& where, NoticeBook& notices,
                                       std::vector<LostRecords>& losses);

// Do these names of symbols mean the same code? Of BPF programs the tag counts: the rest may be cut.
bool same_code_name(std::string_view a, std::string_view b);

class GeneratedText {
 public:
  GeneratedText(const SideBand& side, std::span<const BpfImage> images, const KernelText& kernel,
                const WatchedTexts& watched, const std::string& where, NoticeBook& notices);

  void add_text(Builder& builder);
  void add_symbols(SymbolTable& symbols) const;
  std::vector<BpfProgram> programs() const;
  std::span<const CodeLifetime> lifetimes() const { return lifetimes_; }

 private:
  struct Content {
    AddrRange range;
    std::span<const uint8_t> bytes;
    Time observed = kTimeMin;
    OriginRef origin = kNoOrigin;
    bool file = false;    // an image: nothing else is considered
    bool unsure = false;  // read from the lifetime of another of the same name, perhaps
  };

  void index_lifetimes();
  void assign_images();
  void assign(const BpfFact& load, const BpfImage* image);
  void assign_without_load(const BpfImage& image);
  void end_by_unload(const BpfFact& unload);
  void find_displaced();
  void find_doubts();
  void add_doubt(Builder& builder, const CodeLifetime& lifetime) const;
  void add_doubt(Builder& builder, AddrRange range, int rank, bool at_end) const;
  size_t add_lifetime(CodeLifetime lifetime);
  std::optional<size_t> lifetime_at(Addr begin, Time t, Time skew) const;

  std::vector<Poke> pokes_in(const CodeLifetime& lifetime) const;
  std::vector<Content> contents(Builder& builder, const CodeLifetime& lifetime, std::span<const Poke> pokes);
  std::vector<Content> copies(Builder& builder, const CodeLifetime& lifetime);
  bool shares_copy(const CodeLifetime& lifetime) const;
  void compare_image(const CodeLifetime& lifetime, const Content& image, const Content& copy,
                     std::span<const Poke> pokes);
  void add_lifetime_text(Builder& builder, const CodeLifetime& lifetime);
  bool is_arm64() const;
  CodeLifetime without_neighbours(const CodeLifetime& lifetime, std::vector<Content>& contents) const;
  void find_rewritten();
  bool is_rewritten(AddrRange range, std::string_view name) const;
  void add_versions(Builder& builder, const CodeLifetime& lifetime, std::span<const Poke> pokes,
                    const std::vector<Content>& contents);
  void add_snapshot_symbols(Builder& builder);
  OriginRef snapshot_origin(Builder& builder, const KernelSnapshot& snapshot);

  const SideBand& side_;
  std::span<const BpfImage> images_;
  const KernelText& kernel_;
  const WatchedTexts& watched_;
  std::string where_;
  NoticeBook& notices_;
  std::optional<LostIndex> lost_;  // losses of records, recorded and inferred
  std::vector<CodeLifetime> lifetimes_;
  std::map<Addr, std::vector<size_t>> by_begin_;  // lifetimes in order of `from`
  struct Tagged {
    std::vector<size_t> lifetimes;
    size_t first = 0;  // all before it have an id or are over
  };
  std::map<std::string, Tagged> by_tag_;                    // "bpf_prog_<tag>"
  std::map<size_t, std::vector<const WatchedText*>> seen_;  // of a lifetime
  std::map<uint32_t, BpfProgram> programs_;
  std::vector<uint32_t> pokes_by_addr_;  // indices of side_.pokes in generated text
  // Addresses that pokes made a branch go to, and away from, within a page of each other (is_rewritten()).
  std::vector<Addr> halves_;
  std::map<const KernelSnapshot*, OriginRef> snapshot_origins_;
};

}  // namespace asof
