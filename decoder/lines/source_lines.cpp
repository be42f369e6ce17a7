#include "decoder/lines/source_lines.h"

#include <fmt/format.h>
#include <tsl/robin_map.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <unordered_map>

#include "decoder/io/files_read.h"
#include "decoder/io/sideband_notices.h"
#include "decoder/lines/dwarf_lines.h"
#include "decoder/model/file_finder.h"
#include "decoder/model/image.h"

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

  explicit Impl(const CodeFileMap& code) : map(code), files(code.files.size()) {
    for (const CodeMapping& p : map.mappings) {
      if (p.file < files.size()) places[p.space].add(p);
    }
    for (auto& [space, index] : places) index.finish();
  }

  DwarfLines* lines_of(uint32_t file);
  std::unique_ptr<DwarfLines> open(const CodeFile& file);
  std::vector<std::string> candidates(const CodeFile& file, const DebugLink& link) const;
  bool belongs(const std::string& candidate, const CodeFile& file, const DebugLink& link) const;

  const CodeFileMap& map;
  std::unordered_map<Space, PlaceIndex> places;
  std::vector<File> files;
  tsl::robin_map<Key, SourceLine, KeyHash> cache;
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
  if (!is_error_or_loss(own.error().code)) {
    notices.info(Code::kNoDebugInfo, file.recorded.empty() ? file.path : file.recorded,
                 "neither it nor a file beside it has debug information: no source lines of its code",
                 "install its debug package, or give --symfs or --buildid-dir with the debug file");
  }
  return nullptr;
}

DwarfLines* SourceLines::Impl::lines_of(uint32_t file) {
  File& f = files[file];
  if (!f.opened) {
    f.opened = true;
    f.lines = open(map.files[file]);
  }
  return f.lines.get();
}

SourceLines::SourceLines(const Capture& capture) : impl_(std::make_unique<Impl>(capture.code)) {}
SourceLines::~SourceLines() = default;
SourceLines::SourceLines(SourceLines&&) noexcept = default;

SourceLine SourceLines::at(Space space, Addr a, Time t) {
  if (is_kernel_address(a)) space = kKernelSpace;
  const auto index = impl_->places.find(space);
  const CodeMapping* place = index == impl_->places.end() ? nullptr : index->second.find(a, t);
  if (place == nullptr) return {};
  const uint64_t linked = a - place->slide;
  const Impl::Key key{place->file, linked};
  if (const auto known = impl_->cache.find(key); known != impl_->cache.end()) return known->second;
  SourceLine out;
  if (DwarfLines* lines = impl_->lines_of(place->file)) {
    const DwarfLine found = lines->find(linked);
    out = {found.file, found.line, found.column};
    if (const std::string why = lines->take_problem(); !why.empty()) {
      impl_->notices.error(Code::kBadDebugInfo, impl_->map.files[place->file].path,
                           fmt::format("its debug information cannot be read everywhere: {}", why),
                           "compare the file with its package");
    }
  }
  if (impl_->cache.size() >= kMostCached) impl_->cache.clear();
  impl_->cache.emplace(key, out);
  return out;
}

std::vector<Notice> SourceLines::take_notices() { return impl_->notices.take(); }

}  // namespace asof
