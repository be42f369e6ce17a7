#include "decoder/kernel_text/kernel_text.h"

#include <utility>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <unordered_map>

namespace asof {
namespace {

namespace fs = std::filesystem;

bool exists(const std::string& path) {
  std::error_code ignored;
  return !path.empty() && fs::exists(path, ignored);
}

// The files that belong to a kcore are beside it with the same suffix: kcore.end has kallsyms.end and
// modules.end.
KernelSnapshot::Paths beside(const std::string& kcore, const std::string& kallsyms) {
  const fs::path path(kcore);
  const std::string name = path.filename().string();
  const std::string suffix = name.starts_with("kcore") ? name.substr(5) : "";
  const fs::path folder = path.parent_path();
  return {kcore, kallsyms.empty() ? (folder / ("kallsyms" + suffix)).string() : kallsyms,
          (folder / ("modules" + suffix)).string()};
}

bool overlaps_text(const KernelSnapshot* snapshot, AddrRange range) {
  return snapshot != nullptr && std::any_of(snapshot->text().begin(), snapshot->text().end(),
                                            [&](const auto& piece) { return piece.range.overlaps(range); });
}

template <class Wanted>
void add_code_of(const Kallsyms& kallsyms, const SymbolTable::Add& add, int rank, Wanted wanted) {
  for (const KernelSymbol& s : kallsyms.symbols()) {
    if (!s.is_code() || s.is_generated() || !is_kernel_address(s.addr) || !wanted(s)) continue;
    add({.range = {s.addr, s.addr},
         .name = std::string(s.name),
         .dso = s.module.empty() ? "[kernel.kallsyms]" : fmt::format("[{}]", s.module),
         .rank = rank});
  }
}

}  // namespace

// State of one poke's site: does the copy agree with the records up to now?
Time observed_time(std::span<const Poke> pokes, Time earliest,
                   const std::function<std::span<const uint8_t>(AddrRange)>& read) {
  struct Site {
    std::span<const uint8_t> bytes;
    bool agrees = true;
  };
  std::unordered_map<Addr, Site> sites;
  int64_t wrong = 0;
  auto equal = [](std::span<const uint8_t> memory, std::span<const uint8_t> record) {
    const size_t n = std::min(memory.size(), record.size());
    return std::equal(record.begin(), record.begin() + static_cast<std::ptrdiff_t>(n), memory.begin());
  };
  for (const Poke& poke : pokes) {  // before any of them
    const AddrRange range = range_of(poke.addr, std::max(poke.old_bytes.size(), poke.new_bytes.size()));
    auto [it, fresh] = sites.try_emplace(poke.addr);
    if (!fresh) continue;
    it->second.bytes = read(range);
    if (it->second.bytes.empty()) continue;
    it->second.agrees = equal(it->second.bytes, poke.old_bytes);
    wrong += it->second.agrees ? 0 : 1;
  }
  int64_t best_wrong = INT64_MAX;
  Time best = earliest, now = kTimeMin;
  for (size_t i = 0;; ++i) {
    const bool moved = i == pokes.size() || pokes[i].time != now;
    const Time valid_until = i == pokes.size() ? kTimeMax : pokes[i].time - 1;
    if (moved && valid_until >= earliest && wrong < best_wrong) {
      best_wrong = wrong;
      best = std::max(now, earliest);
    }
    if (i == pokes.size()) return best;
    now = pokes[i].time;
    Site& site = sites[pokes[i].addr];
    if (site.bytes.empty()) continue;
    const bool agrees = equal(site.bytes, pokes[i].new_bytes);
    wrong += (site.agrees ? 1 : 0) - (agrees ? 1 : 0);
    site.agrees = agrees;
  }
}

KernelText::KernelText(const CaptureOptions& options, const std::string& capture_dir, const SideBand& side,
                       NoticeBook& notices)
    : options_(options), side_(side), notices_(notices) {
  end_time_ = side.last_time == kTimeMin ? kTimeMax : saturating_add(side.last_time, 1);
  std::string kcore = options.kcore;
  if (kcore.empty() && !capture_dir.empty() && exists(capture_dir + "/kcore_dir/kcore"))
    kcore = capture_dir + "/kcore_dir/kcore";
  std::error_code ignored;
  if (fs::is_directory(kcore, ignored)) kcore += "/kcore";
  if (!kcore.empty()) {
    start_ = KernelSnapshot::load(beside(kcore, options.kallsyms), OriginKind::kKcore, side, options.force,
                                  notices);
  }
  if (!start_) find_kallsyms(capture_dir);
  std::string end = options.kcore_end;
  if (end.empty() && !capture_dir.empty()) {
    const fs::path folder = fs::path(capture_dir) / "..";
    for (const fs::path& place : {fs::path(capture_dir) / "kcore.end", folder / "kcore.end"}) {
      if (end.empty() && exists(place.string())) end = place.lexically_normal().string();
    }
  }
  if (fs::is_directory(end, ignored)) end += exists(end + "/kcore.end") ? "/kcore.end" : "/kcore";
  if (!end.empty())
    end_ = KernelSnapshot::load(beside(end, ""), OriginKind::kKcoreEnd, side, options.force, notices);
}

void KernelText::add_text(Builder& builder, const WatchedTexts& watched, FileFinder& files,
                          const PerfData& data) {
  if (start_)
    add_start(builder, watched);
  else
    add_vmlinux(builder, files, data);
  add_module_files(builder, files, data);
  if (end_) add_end(builder, data);
  add_modules_seen(builder, watched);
  add_unclaimed(builder);
}

void KernelText::add_start(Builder& builder, const WatchedTexts& watched) {
  builder.keep(start_->owner());
  const OriginRef origin =
      builder.add_origin({.kind = OriginKind::kKcore, .name = start_->path(), .build_id = {}});
  // perf copies kcore before it starts the trace.
  auto copied = std::upper_bound(side_.pokes.begin(), side_.pokes.end(), side_.trace_start,
                                 [](Time t, const Poke& p) { return t < p.time; });
  const Time observed =
      observed_time({side_.pokes.begin(), copied}, kTimeMin, [&](AddrRange r) { return start_->raw(r); });
  for (const KernelSnapshot::Piece& piece : start_->text()) {
    Layer layer{.range = piece.range,
                .bytes = piece.bytes,
                .observed = observed,
                .rank = kRankSnapshot,
                .origin = origin,
                .replaceable = piece.name != "kernel",
                .unsure = piece.name != "kernel" || start_->forced()};
    for (const WatchedText& seen : watched.texts) {  // by time: the first one that replaces it
      if (seen.type == WatchedText::kModule && seen.range.overlaps(piece.range)) {
        layer.until = seen.time - 1;
        break;
      }
    }
    if (layer.replaceable) note_module();
    builder.add_layer(layer);
  }
}

// A module that was loaded during the recording. Its bytes are valid from its load on, whose time is not
// known better than this; what ran there before, if anything did, was the text of the first snapshot or of
// the module seen before, or of another one that came and went unrecorded.
void KernelText::add_modules_seen(Builder& builder, const WatchedTexts& watched) {
  if (watched.texts.empty()) return;
  const OriginRef origin =
      builder.add_origin({.kind = OriginKind::kWatcher, .name = watched.path, .build_id = {}});
  builder.keep(watched.owner);
  for (size_t i = 0; i < watched.texts.size(); ++i) {
    const WatchedText& seen = watched.texts[i];
    if (seen.type != WatchedText::kModule) continue;
    Layer layer{.range = seen.range,
                .bytes = seen.bytes,
                .observed = seen.time,
                .rank = kRankWatched,
                .origin = origin,
                .unsure = true};
    bool had_other = overlaps_text(start_.get(), seen.range);
    for (size_t k = 0; k < watched.texts.size(); ++k) {
      const WatchedText& other = watched.texts[k];
      if (k == i || other.type != WatchedText::kModule || !other.range.overlaps(seen.range)) continue;
      if (k < i) had_other = true;
      if (k > i) layer.until = std::min(layer.until, other.time - 1);
    }
    if (had_other) layer.from = seen.time;
    if (layer.from > layer.until) continue;
    note_module();
    builder.add_layer(layer);
    // Text of another module that was there before, and came and went unrecorded, is as likely.
    if (!had_other && seen.time > kTimeMin + 1)
      builder.add_layer({.range = seen.range,
                         .bytes = {},
                         .from = kTimeMin + 1,
                         .until = std::min(layer.until, seen.time - 1),
                         .rank = kRankWatched});
  }
}

void KernelText::note_module() {
  if (std::exchange(modules_noted_, true)) return;
  notices_.info(
      Code::kModulesReplaceable, "modules",
      "text of modules is not certain: no record shows that another module was loaded in its place");
}

void KernelText::add_symbols(SymbolTable& symbols) const {
  const std::shared_ptr<const Kallsyms> first =
      start_ && start_->kallsyms() != nullptr ? start_->shared_kallsyms() : kallsyms_;
  const std::shared_ptr<const Kallsyms> last = end_ ? end_->shared_kallsyms() : nullptr;
  symbols.add_later([first, last, files = file_symbols_](const SymbolTable::Add& add) {
    if (first) add_code_of(*first, add, 0, [](const KernelSymbol&) { return true; });
    for (const Symbol& symbol : files) add(symbol);
    if (last)
      add_code_of(*last, add, -1,
                  [&](const KernelSymbol& s) { return !first || !first->has(s.addr, s.name); });
  });
}

}  // namespace asof
