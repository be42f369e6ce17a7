// Kernel text from files, where no kcore was copied. A vmlinux has neither alternatives nor static keys as
// patched at boot, so it serves only where nothing better exists (kRankFallback), and a notice says so.
#include <fmt/format.h>

#include <algorithm>

#include "decoder/kernel_text/kernel_text.h"
#include "decoder/user_text/vdso_image.h"

namespace asof {
namespace {

constexpr uint16_t kEtExec = 2, kEtDyn = 3;

// Without any hint: what the host keeps for its own kernels, under the recording's release.
std::vector<std::string> vmlinux_places(const std::string& release) {
  if (release.empty() || release.find('/') != std::string::npos) return {};
  return {"/usr/lib/debug/boot/vmlinux-" + release, "/usr/lib/debug/lib/modules/" + release + "/vmlinux",
          "/boot/vmlinux-" + release, "/lib/modules/" + release + "/build/vmlinux"};
}

}  // namespace

std::string recorded_kernel_id(const SideBand& side, const PerfData& data) {
  for (const BuildIdEntry& entry : data.build_ids()) {
    if (entry.filename.starts_with("[kernel.kallsyms]")) return normal_build_id(entry.build_id);
  }
  for (const KernelMapFact& map : side.kernel_maps) {
    if (map.name.starts_with("[kernel.kallsyms]") && !map.build_id.empty())
      return normal_build_id(map.build_id);
  }
  return {};
}

const TextFile* KernelText::find_vmlinux(FileFinder& files, const PerfData& data) const {
  const std::string id = recorded_kernel_id(side_, data);
  const TextFile* file = files.find_quietly("[kernel.kallsyms]", id, options_.vmlinux);
  for (const std::string& place : vmlinux_places(data.feature_string(4))) {
    if (file == nullptr && options_.host_files && !id.empty()) file = files.find_quietly(place, id, {});
  }
  return file;
}

// From a copy of memory that has it (perf's copies have code only), from the kernel's file, or from the
// running kernel if that is the recorded one.
std::unique_ptr<TextFile> KernelText::find_vdso(FileFinder& files, const PerfData& data,
                                                const std::string& build_id) const {
  const auto fits = [&](const std::optional<TextFile>& file) {
    return file && (build_id.empty() || same_build_id(build_id, file->build_id));
  };
  for (const KernelSnapshot* copy : {start_.get(), end_.get()}) {
    if (copy == nullptr) continue;
    const auto vdso =
        vdso_of_kernel(copy->segments(), copy->machine(), copy->path() + " [vdso]", copy->owner(), false);
    if (fits(vdso)) return std::make_unique<TextFile>(*vdso);
  }
  if (const auto elf = find_source(files, data)) {
    const auto vdso = vdso_of_kernel(elf->segments(), elf->machine(), elf->path() + " [vdso]", elf, true);
    if (fits(vdso)) return std::make_unique<TextFile>(*vdso);
  }
  if (!options_.host_files) return nullptr;
  const auto own = own_vdso();
  const bool proved =
      own && (!build_id.empty() || same_build_id(recorded_kernel_id(side_, data), own->kernel_id));
  return proved && fits(own->file) ? std::make_unique<TextFile>(own->file) : nullptr;
}

// As find_vmlinux(), but where a copy of kcore has the bytes nothing is reported as not found.
std::shared_ptr<const ElfImage> KernelText::find_source(FileFinder& files, const PerfData& data) const {
  if (!start_ || !options_.vmlinux.empty()) {
    const TextFile* file = find_vmlinux(files, data);
    return file == nullptr ? nullptr : file->elf;
  }
  const std::string id = recorded_kernel_id(side_, data);
  std::vector<std::string> roots;
  if (!files.symfs().empty()) roots.push_back(files.symfs());
  if (options_.host_files) roots.emplace_back();
  for (const std::string& root : roots) {
    for (const std::string& place : vmlinux_places(data.feature_string(4))) {
      const auto elf =
          id.empty() ? Result<std::shared_ptr<const ElfImage>>(nullptr) : ElfImage::open(root + place);
      if (elf && *elf && same_build_id(id, (*elf)->build_id())) return *elf;
    }
  }
  return nullptr;
}

void KernelText::add_vmlinux(Builder& builder, FileFinder& files, const PerfData& data) {
  auto kernel = std::find_if(side_.kernel_maps.begin(), side_.kernel_maps.end(),
                             [](const KernelMapFact& m) { return m.name.starts_with("[kernel.kallsyms]"); });
  if (kernel == side_.kernel_maps.end()) return;  // kernel not traced, or its address is not recorded
  const std::string id = recorded_kernel_id(side_, data);
  const TextFile* file = find_vmlinux(files, data);
  if (file == nullptr || !file->elf || file->elf->is_debug_only() ||
      (file->elf->type() != kEtExec && file->elf->type() != kEtDyn)) {
    notices_.error(
        Code::kNoKernelText, data.path(),
        id.empty()
            ? "no copy of kcore, so kernel code is unknown"
            : fmt::format("neither a copy of kcore nor a vmlinux with build-id {}: kernel code is unknown",
                          id),
        "record with perf record --kcore, or give --kcore or --vmlinux");
    return;
  }
  const std::string_view reference = std::string_view(kernel->name).substr(kernel->name.find(']') + 1);
  const auto linked = file->elf->symbol_value(reference.empty() ? "_text" : reference);
  const Addr slide = linked && kernel->pgoff != 0 ? kernel->pgoff - *linked : 0;
  const OriginRef origin =
      builder.add_origin({.kind = OriginKind::kFile, .name = file->path, .build_id = file->build_id});
  builder.keep(file->owner);
  for (const ElfSegment& segment : file->elf->segments()) {
    const AddrRange all = range_of(segment.address + slide, segment.bytes.size());
    const AddrRange range = all.intersect(kernel->range);
    if (!segment.executable || range.empty()) continue;
    builder.add_layer({.range = range,
                       .bytes = segment.bytes.subspan(range.begin - all.begin, range.size()),
                       .rank = kRankFallback,
                       .origin = origin,
                       .unsure = true});
  }
  notices_.error(Code::kKernelTextFromFile, file->path,
                 "kernel code comes from this file, which has no alternatives, static keys or static calls "
                 "as patched at boot",
                 "record with perf record --kcore");
  for (const ElfSymbol& s : file->elf->symbols()) {
    file_symbols_.push_back(
        {.range = range_of(s.value + slide, s.size), .name = s.name, .dso = "[kernel.kallsyms]", .rank = -1});
  }
}

}  // namespace asof
