// Modules from their files, where no copy of kcore has them: module_image.h says what of a file is in memory.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "decoder/io/folder.h"
#include "decoder/kernel_text/kernel_text.h"

namespace asof {
namespace {

namespace fs = std::filesystem;

constexpr int kOsRelease = 4;               // feature
constexpr size_t kMostModuleFiles = 65536;  // below one folder; distributions have about 5,000

// Files below `root` that are modules, by name as kallsyms spells it.
std::map<std::string, std::string> modules_below(const std::string& root) {
  std::map<std::string, std::string> out;
  walk_files(root, [&](const std::string& path) {
    const std::string name = path.substr(path.rfind('/') + 1);
    if (name.find(".ko") != std::string::npos) out.try_emplace(module_of_map(name), path);
    return out.size() < kMostModuleFiles;
  });
  return out;
}

std::string recorded_id(const KernelMapFact& map, const PerfData& data) {
  if (!map.build_id.empty()) return normal_build_id(map.build_id);
  for (const BuildIdEntry& entry : data.build_ids()) {
    if (entry.filename == map.name) return normal_build_id(entry.build_id);
  }
  return {};
}

// The layers of an image: runs of known bytes, and each variant of a site that has several.
void add_image(Builder& builder, const ModuleImage& image, OriginRef origin) {
  for (const ModuleImage::Text& text : image.text) {
    for (size_t begin = 0; begin < text.known.size();) {
      size_t end = begin;
      while (end < text.known.size() && text.known[end] == text.known[begin]) ++end;
      if (text.known[begin] != 0) {
        builder.add_layer({.range = {text.range.begin + begin, text.range.begin + end},
                           .bytes = std::span(text.bytes).subspan(begin, end - begin),
                           .rank = kRankFallback,
                           .origin = origin,
                           .unsure = true});
      }
      begin = end;
    }
  }
  for (const ModuleImage::Site& site : image.sites) {
    for (const auto& variant : site.variants) {
      builder.add_layer({.range = range_of(site.addr, variant.size()),
                         .bytes = variant,
                         .rank = kRankFallback,
                         .origin = origin,
                         .unsure = true});
    }
  }
}

}  // namespace

void KernelText::find_kallsyms(const std::string& capture_dir) {
  std::string path = options_.kallsyms;
  std::error_code ignored;
  for (const char* place : {"/kcore_dir/kallsyms", "/kallsyms"}) {
    if (path.empty() && !capture_dir.empty() && fs::exists(capture_dir + place, ignored))
      path = capture_dir + place;
  }
  if (path.empty()) return;
  auto loaded = Kallsyms::load(path);
  if (!loaded) {
    notices_.error(loaded.error().code, path, loaded.error().reason, loaded.error().hint);
  } else if (compare_boot(*loaded, side_, options_.force, notices_) != Boot::kOther) {
    note_cut_lines(path, notices_);
    kallsyms_ = std::make_shared<const Kallsyms>(std::move(*loaded));
  }
}

// By the recorded path; else by name below --modules, or where this machine keeps modules of that release.
const TextFile* KernelText::find_module_file(const KernelMapFact& map, const std::string& name,
                                             FileFinder& files, const PerfData& data) {
  const std::string id = recorded_id(map, data);
  if (options_.modules_dir.empty()) {
    if (const TextFile* file = files.find_quietly(map.name, id, {})) return file;
  }
  if (!module_paths_) {
    const std::string release = data.feature_string(kOsRelease);
    std::string root = options_.modules_dir;
    if (root.empty() && options_.host_files && !release.empty() && release.find('/') == std::string::npos)
      root = "/lib/modules/" + release;
    module_paths_ = root.empty() ? std::map<std::string, std::string>() : modules_below(root);
  }
  const auto path = module_paths_->find(name);
  return path == module_paths_->end() ? nullptr : files.find_quietly(map.name, id, path->second);
}

void KernelText::add_module_files(Builder& builder, FileFinder& files, const PerfData& data) {
  const auto copied = [](const KernelSnapshot* snapshot, AddrRange range) {
    return snapshot != nullptr && std::any_of(snapshot->text().begin(), snapshot->text().end(),
                                              [&](const auto& piece) { return piece.range.overlaps(range); });
  };
  const Kallsyms* const kallsyms = start_ ? start_->kallsyms() : kallsyms_.get();
  std::optional<ExportedSymbols> symbols;
  for (const KernelMapFact& map : side_.kernel_maps) {
    const std::string name = module_of_map(map.name);
    if (name.empty() || copied(start_.get(), map.range) || copied(end_.get(), map.range)) continue;
    if (!symbols && kallsyms != nullptr) symbols.emplace(*kallsyms);
    const TextFile* file = find_module_file(map, name, files, data);
    if (file == nullptr) {
      notices_.error(Code::kModuleWithoutText, map.name,
                     fmt::format("neither a copy nor a file of module {}: its code is unknown", name),
                     "record with perf record --kcore, or give --modules with the recorded kernel's modules");
      continue;
    }
    add_module_file(builder, map, name, *file, data, symbols ? &*symbols : nullptr);
  }
}

void KernelText::add_module_file(Builder& builder, const KernelMapFact& map, const std::string& name,
                                 const TextFile& file, const PerfData& data, const ExportedSymbols* symbols) {
  const auto refuse = [&](const Error& e) {
    notices_.error(e.code, name, fmt::format("{}: {}; its code is unknown", e.where, e.reason), e.hint,
                   e.offset);
  };
  const auto elf = ModuleElf::parse(file.bytes, file.path);
  if (!elf) return refuse(elf.error());
  const std::string release = data.feature_string(kOsRelease);
  const std::string_view built_for = module_release(*elf);
  if (!options_.force && !release.empty() && !built_for.empty() && built_for != release) {
    return refuse({Code::kModuleOfOtherKernel, file.path, Error::kNoOffset,
                   fmt::format("it is for kernel {}, the recording is of {}", built_for, release),
                   "give the modules of the recorded kernel (--modules), or use --force"});
  }
  ModuleContext context{.name = name, .range = map.range, .one_cpu = data.nr_cpus() <= 1, .symbols = symbols};
  auto image = make_module_image(*elf, context, file.path);
  if (!image) return refuse(image.error());
  uint64_t known = 0;
  uint64_t several = 0;
  for (const ModuleImage::Text& text : image->text) known += text.bytes.size();
  for (const ModuleImage::Site& site : image->sites) several += site.variants[0].size();
  notices_.info(Code::kModuleTextFromFile, name,
                fmt::format("text from {}: {} bytes as in the file, {} with several candidates, {} unknown{}",
                            file.path, known - image->unknown_bytes, several, image->unknown_bytes - several,
                            symbols == nullptr ? " (there is no kallsyms)" : ""),
                "record with perf record --kcore");
  const auto owned = std::make_shared<const ModuleImage>(std::move(*image));
  builder.keep(owned);
  builder.keep(file.owner);
  const OriginRef origin =
      builder.add_origin({.kind = OriginKind::kFile, .name = file.path, .build_id = file.build_id});
  add_image(builder, *owned, origin);
}

void KernelText::add_module_code(CodeFileMap& code, const FileFinder& files, const PerfData& data) const {
  for (const KernelMapFact& map : side_.kernel_maps) {
    if (module_of_map(map.name).empty() || map.name.find(".ko") == std::string::npos || map.range.empty())
      continue;
    const std::string& symfs = files.symfs();
    const bool host = symfs.empty() && options_.host_files;
    code.files.push_back({host            ? map.name
                          : symfs.empty() ? std::string()
                                          : symfs + map.name,
                          map.name, recorded_id(map, data)});
    code.mappings.push_back({.range = map.range,
                             .file = static_cast<uint32_t>(code.files.size() - 1),
                             .slide = map.range.begin,
                             .rank = 1});
  }
}

}  // namespace asof
