#include "decoder/lines/source_lines.h"

#include <fmt/format.h>
#include <tsl/robin_map.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <unordered_map>
#include <utility>

#include "decoder/io/files_read.h"
#include "decoder/io/sideband_notices.h"
#include "decoder/lines/debug_link.h"
#include "decoder/lines/debuginfod.h"
#include "decoder/lines/dwarf_lines.h"
#include "decoder/model/demangle.h"
#include "decoder/model/file_finder.h"
#include "decoder/model/image.h"
#include "textstore/plain_text.h"

namespace asof {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostCached = size_t{1} << 20U;  // addresses
constexpr size_t kMostScanned = 4096;             // ranges examined for one address

bool is_file(const std::string& path) {
  std::error_code ignored;
  const bool there = fs::is_regular_file(path, ignored);
  if (!there) FilesRead::note_missing(path);
  return there;
}

bool is_module(const CodeFile& file) { return file.recorded.find(".ko") != std::string::npos; }

// As kallsyms spells it: "virtio_blk" of "/lib/modules/6.1/kernel/drivers/block/virtio-blk.ko.xz".
std::string module_name(const CodeFile& file) {
  std::string name = file.recorded.substr(file.recorded.rfind('/') + 1);
  name.resize(std::min(name.find(".ko"), name.size()));
  std::ranges::replace(name, '-', '_');
  return name;
}

std::string build_id_of(const std::string& path) {
  const auto elf = ElfImage::open(path);
  return elf ? (*elf)->build_id() : std::string();
}

// Files in memory of one space, by begin.
class PlaceIndex {
 public:
  void add(const CodeMapping& p) { places_.push_back({&p, 0}); }
  void finish() {
    std::ranges::stable_sort(places_, {}, [](const Entry& e) { return e.place->range.begin; });
    Addr highest = 0;
    for (Entry& e : places_) e.highest_end = highest = std::max(highest, e.place->range.end);
  }
  const CodeMapping* find(Addr a, Time t) const {
    const CodeMapping* best = nullptr;
    auto next = std::ranges::upper_bound(places_, a, {}, [](const Entry& e) { return e.place->range.begin; });
    for (size_t i = 0; i < kMostScanned && next != places_.begin(); ++i) {
      --next;
      if (next->highest_end <= a) break;
      const CodeMapping& p = *next->place;
      if (!p.range.contains(a) || p.from > t || p.until < t) continue;
      if (best == nullptr || std::pair(p.rank, p.from) > std::pair(best->rank, best->from)) best = &p;
    }
    return best;
  }

 private:
  struct Entry {
    const CodeMapping* place;
    Addr highest_end;  // of this and all before it
  };
  std::vector<Entry> places_;
};

}  // namespace

struct SourceLines::Impl {
  struct File {
    bool opened = false;
    std::optional<uint64_t> base;  // of a kernel that was absent: where its file has absent_kernel_symbol()
    std::unique_ptr<DwarfLines> lines;
  };
  struct Key {
    uint32_t file;
    uint64_t address;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& k) const {
      return (k.address ^ (uint64_t{k.file} << 48U)) * kHashFactor >> 16U;
    }
  };

  explicit Impl(const Capture& c)
      : capture(c), map(c.code), style(c.symbols.style()), files(c.code.files.size()) {
    for (const CodeMapping& p : map.mappings) {
      if (p.file < files.size()) places[p.space].add(p);
    }
    for (auto& [space, index] : places) index.finish();
  }

  bool asked = false, found = false;  // lines of any code
  bool told = false;                  // that nothing was found
  DwarfLines* lines_of(uint32_t file);
  std::unique_ptr<DwarfLines> open(const CodeFile& file);
  std::vector<std::string> candidates(const CodeFile& file, const DebugLink& link) const;
  bool belongs(const std::string& candidate, const CodeFile& file, const DebugLink& link) const;
  std::string fetch(const CodeFile& file);
  // Nothing: no file is known to be there, or it is a kernel's that was not looked for yet.
  std::optional<Key> key_of(Space space, Addr a, Time t) const;
  // Looks for it.
  std::optional<Key> key_with_lines(Space space, Addr a, Time t);
  const CodeMapping* mapping_at(Space space, Addr a, Time t) const;
  std::optional<Key> key_in(const CodeMapping& place, Addr a) const;
  SourceLine line(const Key& key);
  std::vector<SourceFrame> frames(const Key& key);
  std::string shown(std::string_view name) const;
  void note_problem(uint32_t file, DwarfLines& lines);

  std::unique_ptr<DwarfLines> open_kernel(const CodeFile& file, std::optional<uint64_t>& base);
  std::unique_ptr<DwarfLines> open_module(const CodeFile& file);
  bool fits(const CodeFile& file, const DwarfLines& lines, bool same_id) const;
  bool was_loaded(const CodeMapping& place, Time t) const;

  const Capture& capture;
  const CodeFileMap& map;
  NameStyle style;
  std::unordered_map<Space, PlaceIndex> places;
  std::vector<File> files;
  tsl::robin_map<Key, SourceLine, KeyHash> cache;
  std::unordered_map<Key, std::vector<SourceFrame>, KeyHash> frame_cache;
  Debuginfod servers;
  NoticeBook notices;
};

// The directories of debug files. First a file by its build-id: that proves its identity.
std::vector<std::string> SourceLines::Impl::candidates(const CodeFile& file, const DebugLink& link) const {
  std::vector<std::string> out;
  const std::string& id = file.build_id;
  if (id.size() > 2) {
    for (const std::string& dir : map.caches)
      out.push_back(fmt::format("{}/.build-id/{}/{}/debug", dir, id.substr(0, 2), id.substr(2)));
    for (const std::string& dir : map.debug_dirs)
      out.push_back(fmt::format("{}/.build-id/{}/{}.debug", dir, id.substr(0, 2), id.substr(2)));
  }
  // Only a name: a path in a file is no reason to search elsewhere.
  if (link.file.empty() || link.file.find('/') != std::string::npos) return out;
  const std::string folder = fs::path(file.path).parent_path().string();
  out.push_back(fmt::format("{}/{}", folder, link.file));
  out.push_back(fmt::format("{}/.debug/{}", folder, link.file));
  const std::string recorded = fs::path(file.recorded).parent_path().string();
  for (const std::string& dir : map.debug_dirs)
    out.push_back(fmt::format("{}{}/{}", dir, recorded, link.file));
  return out;
}

bool SourceLines::Impl::belongs(const std::string& candidate, const CodeFile& file,
                                const DebugLink& link) const {
  if (!is_file(candidate) || candidate == file.path) return false;
  const std::string id = build_id_of(candidate);
  if (!id.empty() && !file.build_id.empty()) return same_build_id(id, file.build_id);
  return !link.file.empty() && debug_link_crc(candidate) == link.crc;
}

std::unique_ptr<DwarfLines> SourceLines::Impl::open(const CodeFile& file) {
  auto own = DwarfLines::open(file.path);
  if (own) return std::move(*own);
  if (is_error_or_loss(own.error().code))
    notices.error(own.error().code, file.path, own.error().reason, own.error().hint);
  const DebugLink link = debug_link(file.path);
  for (const std::string& candidate : candidates(file, link)) {
    if (!belongs(candidate, file, link)) continue;
    auto separate = DwarfLines::open(candidate);
    if (separate) return std::move(*separate);
    if (is_error_or_loss(separate.error().code))
      notices.error(separate.error().code, candidate, separate.error().reason, separate.error().hint);
  }
  if (const std::string path = fetch(file); !path.empty() && belongs(path, file, {})) {
    auto lines = DwarfLines::open(path);
    if (lines) return std::move(*lines);
    notices.error(lines.error().code, path, lines.error().reason, lines.error().hint);
  }
  if (!is_error_or_loss(own.error().code)) {
    notices.info(Code::kNoDebugInfo, file.recorded.empty() ? file.path : file.recorded,
                 "neither it nor a file beside it has debug information: no source lines of its code",
                 "install its debug package, or give --symfs or --buildid-dir with the debug file");
  }
  return nullptr;
}

// From servers, where the user asked for that. Empty: nothing.
std::string SourceLines::Impl::fetch(const CodeFile& file) {
  if (!map.debuginfod || file.build_id.empty()) return {};
  auto path = servers.debug_file(file.build_id);
  if (path) return *std::move(path);
  notices.error(path.error().code, path.error().where, path.error().reason, path.error().hint);
  return {};
}

// Where the recording says the kernel was moved to, and its file where it was linked, are related by one symbol.
std::unique_ptr<DwarfLines> SourceLines::Impl::open_kernel(const CodeFile& file,
                                                           std::optional<uint64_t>& base) {
  std::vector<std::string> places = candidates(file, {});
  if (std::string fetched = fetch(file); !fetched.empty()) places.push_back(std::move(fetched));
  for (const std::string& path : places) {
    if (!is_file(path)) continue;
    const auto elf = ElfImage::open(path);
    if (!elf || !same_build_id((*elf)->build_id(), file.build_id)) continue;
    const auto linked = (*elf)->symbol_value(absent_kernel_symbol(file));
    if (!linked) continue;
    auto lines = DwarfLines::open(path);
    if (!lines) continue;
    base = linked;
    return std::move(*lines);
  }
  notices.info(
      Code::kNoDebugInfo, "[kernel.kallsyms]",
      fmt::format(
          "no file of the recorded kernel (build-id {}) with debug information: no source lines of its code",
          file.build_id),
      "install the kernel's debug package, or give --vmlinux, --buildid-dir or --debuginfod");
  return nullptr;
}

// Modules go without a record: at another time something else may be at its place.
bool SourceLines::Impl::was_loaded(const CodeMapping& place, Time t) const {
  if (!is_module(map.files[place.file])) return true;
  const std::string name = module_name(map.files[place.file]);
  bool known = false, possible = false, others = false;
  for (const ModuleLifetime& m : capture.modules) {
    if (!m.range.overlaps(place.range)) continue;
    const bool at = m.from <= t && t <= m.until;
    if (m.name != name) {
      others = others || at;
      continue;
    }
    if (at && m.seen.lo <= t && t <= m.seen.hi) return true;
    possible = possible || at;
    known = true;
  }
  return !known || (possible && !others);
}

// Its functions must be where kallsyms has them: that proves the layout, and without a build-id the file.
bool SourceLines::Impl::fits(const CodeFile& file, const DwarfLines& lines, bool same_id) const {
  uint64_t slide = 0;
  for (const CodeMapping& m : map.mappings) {
    if (&map.files[m.file] == &file) slide = m.slide;
  }
  uint64_t same = 0, other = 0;
  for (const auto& [name, offset] : lines.module_functions()) {
    const auto at = capture.symbols.find(kKernelSpace, slide + offset, kTimeMin);
    if (at) ++(at->offset == 0 && at->symbol->name == name ? same : other);
  }
  constexpr uint64_t kFew = 3;
  return same_id ? other <= same || same + other == 0 : same >= kFew && other <= same / 8;
}

std::unique_ptr<DwarfLines> SourceLines::Impl::open_module(const CodeFile& file) {
  std::vector<std::string> places = candidates(file, {});
  if (!file.path.empty()) places.push_back(file.path);
  // Debug packages have modules as they were before they were compressed.
  const std::string plain = file.recorded.substr(0, file.recorded.rfind(".ko") + 3);
  for (const std::string& dir : map.debug_dirs) places.push_back(dir + plain);
  if (std::string fetched = fetch(file); !fetched.empty()) places.push_back(std::move(fetched));
  for (const std::string& path : places) {
    if (!is_file(path)) continue;
    const std::string id = build_id_of(path);
    const bool same = !file.build_id.empty() && same_build_id(id, file.build_id);
    if (!file.build_id.empty() && !same) continue;
    auto lines = DwarfLines::open(path);
    if (lines && fits(file, **lines, same)) return std::move(*lines);
  }
  notices.info(Code::kNoDebugInfo, file.recorded,
               "no debug information that fits this module: no source lines of its code",
               "install the kernel's debug package, or give --symfs or --buildid-dir with the debug file");
  return nullptr;
}

DwarfLines* SourceLines::Impl::lines_of(uint32_t file) {
  File& f = files[file];
  if (!f.opened) {
    f.opened = true;
    const CodeFile& of = map.files[file];
    f.lines = is_module(of)                       ? open_module(of)
              : !absent_kernel_symbol(of).empty() ? open_kernel(of, f.base)
                                                  : open(of);
  }
  return f.lines.get();
}

const CodeMapping* SourceLines::Impl::mapping_at(Space space, Addr a, Time t) const {
  const auto index = places.find(is_kernel_address(a) ? kKernelSpace : space);
  const CodeMapping* place = index == places.end() ? nullptr : index->second.find(a, t);
  return place != nullptr && was_loaded(*place, t) ? place : nullptr;
}

std::optional<SourceLines::Impl::Key> SourceLines::Impl::key_in(const CodeMapping& place, Addr a) const {
  const bool absent = !absent_kernel_symbol(map.files[place.file]).empty();
  const auto base = absent ? files[place.file].base : uint64_t{0};
  return base ? std::optional(Key{place.file, a - place.slide + *base}) : std::nullopt;
}

std::optional<SourceLines::Impl::Key> SourceLines::Impl::key_of(Space space, Addr a, Time t) const {
  const CodeMapping* place = mapping_at(space, a, t);
  return place != nullptr ? key_in(*place, a) : std::nullopt;
}

std::optional<SourceLines::Impl::Key> SourceLines::Impl::key_with_lines(Space space, Addr a, Time t) {
  const CodeMapping* place = mapping_at(space, a, t);
  if (place == nullptr) return std::nullopt;
  lines_of(place->file);
  return key_in(*place, a);
}

void SourceLines::Impl::note_problem(uint32_t file, DwarfLines& lines) {
  if (const std::string why = lines.take_split_problem(); !why.empty()) {
    notices.info(Code::kNoDebugInfo, map.files[file].path, why,
                 "copy the .dwo files to beside the program, or to where it was compiled");
  }
  const std::string why = lines.take_problem();
  if (why.empty()) return;
  notices.error(Code::kBadDebugInfo, map.files[file].path,
                fmt::format("its debug information cannot be read everywhere: {}", why),
                "compare the file with its package");
}

SourceLine SourceLines::Impl::line(const Key& key) {
  if (const auto known = cache.find(key); known != cache.end()) return known->second;
  SourceLine out;
  if (DwarfLines* lines = lines_of(key.file)) {
    const DwarfLine found = lines->find(key.address);
    out = {found.file, found.line, found.column};
    note_problem(key.file, *lines);
  }
  if (cache.size() >= kMostCached) cache.clear();
  cache.emplace(key, out);
  return out;
}

std::string SourceLines::Impl::shown(std::string_view name) const {
  if (style != NameStyle::kRaw && looks_mangled(name)) {
    const auto parameters = style == NameStyle::kWithParameters ? Parameters::kYes : Parameters::kNo;
    if (auto source = demangle(name, parameters)) return *std::move(source);
  }
  return plain_text(name);
}

std::vector<SourceFrame> SourceLines::Impl::frames(const Key& key) {
  std::vector<SourceFrame> out;
  DwarfLines* lines = lines_of(key.file);
  if (lines == nullptr) return out;
  SourceLine at = line(key);
  for (const InlinedCall& f : lines->functions_at(key.address)) {
    found = true;
    out.push_back({shown(f.function), at, f.inlined});
    at = {f.file, f.line, f.column};
  }
  note_problem(key.file, *lines);
  return out;
}

SourceLines::SourceLines(const Capture& capture) : impl_(std::make_unique<Impl>(capture)) {}
SourceLines::~SourceLines() = default;
SourceLines::SourceLines(SourceLines&&) noexcept = default;

SourceLine SourceLines::at(Space space, Addr a, Time t) {
  impl_->asked = true;
  const auto key = impl_->key_with_lines(space, a, t);
  SourceLine out = key ? impl_->line(*key) : SourceLine();
  if (out) impl_->found = true;
  return out;
}

std::span<const SourceFrame> SourceLines::frames_at(Space space, Addr a, Time t) {
  impl_->asked = true;
  const auto key = impl_->key_with_lines(space, a, t);
  if (!key) return {};
  auto& cache = impl_->frame_cache;
  if (const auto known = cache.find(*key); known != cache.end()) return known->second;
  if (cache.size() >= kMostCached / 8) cache.clear();
  return cache.emplace(*key, impl_->frames(*key)).first->second;
}

std::optional<SourceLines::Place> SourceLines::place_of(Space space, Addr a, Time t) const {
  const auto key = impl_->key_of(space, a, t);
  if (!key) return std::nullopt;
  return Place{key->file, key->address};
}

std::optional<SourceLines::Place> SourceLines::place_with_lines(Space space, Addr a, Time t) {
  const auto key = impl_->key_with_lines(space, a, t);
  if (!key) return std::nullopt;
  return Place{key->file, key->address};
}

DwarfLines* SourceLines::lines_of(uint32_t file) { return impl_->lines_of(file); }

std::vector<Notice> SourceLines::take_notices() {
  std::vector<Notice> all = impl_->notices.take();
  for (Notice& n : all) impl_->capture.archive_names.set_in(n);
  if (impl_->asked && !impl_->found && !std::exchange(impl_->told, true)) {
    all.push_back({Notice::Severity::kError, Code::kNoDebugInfo, "", Error::kNoOffset, kTimeMin,
                   "no source line is known of any code that ran",
                   impl_->map.debuginfod
                       ? "install debug packages (-dbgsym); -v names each file"
                       : "install debug packages (-dbgsym), or give --debuginfod; -v names each file",
                   1});
  }
  return all;
}

}  // namespace asof
