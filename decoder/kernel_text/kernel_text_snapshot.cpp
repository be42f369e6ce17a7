// One copy of kcore: which of its bytes are code. perf copies [_stext, _etext] and one range from the first
// to the last module symbol (tools/perf/util/symbol-elf.c kcore_copy()), holes included.
#include <fmt/format.h>

#include <algorithm>

#include "decoder/kernel_text/kernel_text.h"

namespace asof {
namespace {

constexpr Addr kPage = 4096;
constexpr size_t kMostSegments = 4096;  // perf writes two or three, a live /proc/kcore has dozens

bool all_zero(std::span<const uint8_t> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](uint8_t b) { return b == 0; });
}

// "[kernel.kallsyms]_text": the symbol by which a recording says where the kernel was.
std::string_view reference_symbol(std::string_view map_name) {
  if (!map_name.starts_with("[kernel.kallsyms]")) return {};
  return map_name.substr(map_name.find(']') + 1);
}

}  // namespace

std::string module_of_map(std::string_view name) {
  if (name.starts_with("[kernel.")) return {};
  std::string out;
  if (name.size() > 2 && name.front() == '[' && name.back() == ']') {
    out = name.substr(1, name.size() - 2);
  } else {
    name.remove_prefix(std::min(name.rfind('/') + 1, name.size()));
    const size_t end = name.find(".ko");
    if (end == std::string_view::npos) return {};
    out = name.substr(0, end);
  }
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

Boot compare_boot(const Kallsyms& kallsyms, const SideBand& side, bool force, NoticeBook& notices) {
  for (const KernelMapFact& map : side.kernel_maps) {
    const std::string_view name = reference_symbol(map.name);
    if (name.empty() || map.pgoff == 0) continue;
    const auto addr = kallsyms.address(name);
    if (!addr || *addr == map.pgoff) return Boot::kSame;
    notices.error(
        Code::kKallsymsOfOtherBoot, kallsyms.path(),
        fmt::format("{} is at {:#x} here, the recording has it at {:#x}: this is of another boot; {}", name,
                    *addr, map.pgoff, force ? "used because of --force" : "not used"),
        "give the kcore copy of the recording: --kcore");
    return force ? Boot::kForced : Boot::kOther;
  }
  return Boot::kSame;
}

std::unique_ptr<KernelSnapshot> KernelSnapshot::load(const Paths& paths, OriginKind kind,
                                                     const SideBand& side, bool force, NoticeBook& notices) {
  std::unique_ptr<KernelSnapshot> out(new KernelSnapshot());
  out->kind_ = kind;
  auto kcore = ElfImage::open(paths.kcore);
  if (!kcore) {
    notices.error(kcore.error().code, paths.kcore, kcore.error().reason, kcore.error().hint,
                  kcore.error().offset);
    return nullptr;
  }
  out->kcore_ = *kcore;
  note_cut_image(**kcore, notices);
  if (out->kcore_->segments().size() > kMostSegments) {
    notices.error(Code::kNotKcore, paths.kcore,
                  fmt::format("{} segments: this is no copy of kcore", out->kcore_->segments().size()));
    return nullptr;
  }
  if (auto kallsyms = Kallsyms::load(paths.kallsyms)) {
    const Boot boot = compare_boot(*kallsyms, side, force, notices);
    if (boot == Boot::kOther) return nullptr;
    out->forced_ = boot == Boot::kForced;
    out->kallsyms_ = std::make_shared<const Kallsyms>(std::move(*kallsyms));
  } else {
    notices.error(Code::kBadKallsyms, paths.kallsyms, kallsyms.error().reason,
                  "without it only what the recording maps is text");
  }
  for (const std::string& lines : {paths.kallsyms, paths.modules}) note_cut_lines(lines, notices);
  if (auto modules = load_modules(paths.modules)) out->modules_ = std::move(*modules);
  out->find_kernel(side, notices);
  out->find_modules(side, notices);
  if (out->kallsyms_) out->find_generated();
  std::sort(out->text_.begin(), out->text_.end(),
            [](const Piece& a, const Piece& b) { return a.range.begin < b.range.begin; });
  return out;
}

const KernelSnapshot::Piece* KernelSnapshot::text_at(AddrRange range) const {
  auto next = std::upper_bound(text_.begin(), text_.end(), range.begin,
                               [](Addr a, const Piece& p) { return a < p.range.begin; });
  if (next == text_.begin() || !std::prev(next)->range.contains(range)) return nullptr;
  return &*std::prev(next);
}

std::span<const uint8_t> KernelSnapshot::raw(AddrRange range) const {
  for (const ElfSegment& segment : kcore_->segments()) {
    if (range_of(segment.address, segment.bytes.size()).contains(range)) {
      return segment.bytes.subspan(range.begin - segment.address, range.size());
    }
  }
  return {};
}

// What the copy has of a range, cut where segments end and around pages of zeros: no page of code is all
// zeros, and a hole is.
void KernelSnapshot::add(std::vector<Piece>& to, AddrRange range, std::string_view name,
                         bool skip_zero_pages) const {
  for (const ElfSegment& segment : kcore_->segments()) {
    const AddrRange part = range_of(segment.address, segment.bytes.size()).intersect(range);
    Addr begin = part.begin;
    auto flush = [&](Addr end) {
      if (begin < end)
        to.push_back({{begin, end}, segment.bytes.subspan(begin - segment.address, end - begin), name});
    };
    for (Addr at = part.begin; skip_zero_pages && at < part.end;) {
      const Addr next = std::min((at | (kPage - 1)) + 1, part.end);
      if (all_zero(segment.bytes.subspan(at - segment.address, next - at))) {
        flush(at);
        begin = next;
      }
      at = next;
    }
    if (!part.empty()) flush(part.end);
  }
}

void KernelSnapshot::find_kernel(const SideBand& side, NoticeBook& notices) {
  AddrRange kernel;
  if (kallsyms_) {
    kernel.begin = kallsyms_->address("_stext").value_or(kallsyms_->address("_text").value_or(0));
    kernel.end = kallsyms_->address("_etext").value_or(0);
  }
  for (const KernelMapFact& map : side.kernel_maps) {
    if (kernel.empty() && !reference_symbol(map.name).empty()) kernel = map.range;
  }
  if (kernel.empty()) {
    notices.error(Code::kNoKernelTextInKcore, kcore_->path(),
                  "neither kallsyms nor the recording says where kernel text is");
    return;
  }
  add(text_, kernel, "kernel", false);
  // Entry trampolines (4.15 to 4.19 with page-table isolation): perf's copy maps the same file bytes once
  // more.
  for (const ElfSegment& segment : kcore_->segments()) {
    for (const ElfSegment& main : kcore_->segments()) {
      const bool alias = &main != &segment && main.address <= kernel.begin &&
                         segment.file_offset >= main.file_offset &&
                         segment.file_offset - main.file_offset < main.bytes.size() &&
                         range_of(main.address, main.bytes.size()).contains(kernel.begin) &&
                         !range_of(segment.address, segment.bytes.size()).overlaps(kernel);
      if (alias) add(text_, range_of(segment.address, segment.bytes.size()), "entry trampoline", false);
    }
  }
}

void KernelSnapshot::find_modules(const SideBand& side, NoticeBook& notices) {
  if (modules_.empty()) {  // only the recording says
    for (const KernelMapFact& map : side.kernel_maps) {
      std::string name = module_of_map(map.name);
      if (!name.empty()) modules_.push_back({std::move(name), map.range, true});
    }
  } else if (kind_ == OriginKind::kKcore) {  // at the end other modules may be loaded
    for (const KernelMapFact& map : side.kernel_maps) {
      const std::string name = module_of_map(map.name);
      auto same = std::find_if(modules_.begin(), modules_.end(),
                               [&](const KernelModule& m) { return m.name == name; });
      if (name.empty() || same == modules_.end() || same->range.begin == map.range.begin) continue;
      notices.error(Code::kModuleMoved, kcore_->path(),
                    fmt::format("module {} is at {:#x} here, the recording has it at {:#x}; not used", name,
                                same->range.begin, map.range.begin));
      same->live = false;
    }
  }
  std::sort(modules_.begin(), modules_.end(),
            [](const KernelModule& a, const KernelModule& b) { return a.range.begin < b.range.begin; });
  for (size_t i = 0; i < modules_.size(); ++i) {
    const KernelModule& module = modules_[i];
    if (!module.live) continue;
    AddrRange range = kallsyms_ ? module_text(module, *kallsyms_) : module.range;
    AddrRange data{range.end, module.range.end};
    if (i + 1 < modules_.size()) {
      range.end = std::min(range.end, modules_[i + 1].range.begin);
      data.end = std::min(data.end, modules_[i + 1].range.begin);
    }
    // Without symbols of data it may be code as well.
    if (!data.empty() && kallsyms_ && kallsyms_->has_data_of_modules()) module_data_.push_back(data);
    add(text_, range, module.name, true);
  }
}

void KernelSnapshot::find_generated() {
  const auto symbols = kallsyms_->symbols();
  for (const KernelSymbol& symbol : symbols) {
    if (!symbol.is_generated() || !is_kernel_address(symbol.addr)) continue;
    AddrRange range{symbol.addr, kallsyms_->next(symbol.addr)};
    // Pages of trampolines and kprobes are one page long; programs are as long as their code, and packs end
    // somewhere.
    const bool program = symbol.name.starts_with("bpf_prog_");
    if (!program) range.end = std::min(range.end, (symbol.addr | (kPage - 1)) + 1);
    add(generated_, range, symbol.name, true);
  }
}

}  // namespace asof
