// Kernel and module text of a recording: copies of kcore, else vmlinux by build-id, and what a second copy
// taken at the end shows. A copy of kcore has holes that read as zeros, freed init text and unmapped modules
// in it; only ranges that some source confirms become text, everything else stays unknown.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "decoder/kernel_text/kernel_text_watch.h"
#include "decoder/model/capture.h"
#include "decoder/model/file_finder.h"
#include "decoder/model/image.h"
#include "decoder/module/kernel_text_symbols.h"
#include "decoder/module/module_image.h"
#include "decoder/sideband/sideband.h"
#include "textstore/builder.h"

namespace asof {

// One copy of kcore with the kallsyms and modules files that belong to it.
class KernelSnapshot {
 public:
  struct Paths {
    std::string kcore, kallsyms, modules;
  };
  struct Piece {
    AddrRange range;
    std::span<const uint8_t> bytes;
    std::string_view name;  // of generated code: its symbol; else module name or "kernel"
  };

  // nullptr, with notices, when it cannot be read or belongs to another boot than the recording.
  static std::unique_ptr<KernelSnapshot> load(const Paths& paths, OriginKind kind, const SideBand& side,
                                              bool force, NoticeBook& notices);

  OriginKind kind() const { return kind_; }
  const std::string& path() const { return kcore_->path(); }
  std::shared_ptr<const void> owner() const { return kcore_; }
  uint16_t machine() const { return kcore_->machine(); }  // EM_*
  std::span<const ElfSegment> segments() const { return kcore_->segments(); }
  const Kallsyms* kallsyms() const { return kallsyms_.get(); }  // nullptr: there is none
  const std::shared_ptr<const Kallsyms>& shared_kallsyms() const { return kallsyms_; }
  std::span<const KernelModule> modules() const { return modules_; }

  // Text of the kernel and of live modules, by address, without overlaps.
  std::span<const Piece> text() const { return text_; }
  // Generated code whose symbol kallsyms had at the time of the copy. Its length is a guess: up to the next
  // symbol.
  std::span<const Piece> generated() const { return generated_; }
  // The piece of text() that has all of a range, or nullptr.
  const Piece* text_at(AddrRange range) const;
  // What the copy has in the areas of modules and generated code that text() does not have, without data of
  // modules, `poked` (of merged_ranges()) and memory that is not in use. By address, nameless; generated()
  // may overlap.
  std::vector<Piece> unclaimed(std::span<const AddrRange> poked) const;
  AddrRange module_span() const;
  bool forced() const { return forced_; }  // it is of another boot
  // What the copy holds of a range; empty when any of it is not in the copy. Does not show whether it is
  // code.
  std::span<const uint8_t> raw(AddrRange range) const;

 private:
  KernelSnapshot() = default;
  void find_kernel(const SideBand& side, NoticeBook& notices);
  void find_modules(const SideBand& side, NoticeBook& notices);
  void find_generated();
  void add(std::vector<Piece>& to, AddrRange range, std::string_view name, bool skip_zero_pages) const;

  OriginKind kind_ = OriginKind::kKcore;
  bool forced_ = false;
  std::shared_ptr<const ElfImage> kcore_;
  std::shared_ptr<const Kallsyms> kallsyms_;
  std::vector<KernelModule> modules_;
  std::vector<Piece> text_, generated_;
  std::vector<AddrRange> module_data_;  // after their text (before Linux 6.4)
};

// "/lib/modules/6.1/kernel/drivers/virtio_blk.ko.xz", "[virtio_blk]" -> "virtio_blk"; kallsyms has _ for -.
// Empty: the mapping is no module's.
std::string module_of_map(std::string_view name);
enum class Boot : uint8_t { kSame, kForced, kOther };
// Is kallsyms of the boot that was recorded? If not, there is a notice, and with `force` it is used.
Boot compare_boot(const Kallsyms& kallsyms, const SideBand& side, bool force, NoticeBook& notices);

// Lower-case hex; empty: not recorded.
std::string recorded_kernel_id(const SideBand& side, const PerfData& data);

// Everything about kernel text except BPF and out-of-line code.
class KernelText {
 public:
  KernelText(const CaptureOptions& options, const std::string& capture_dir, const SideBand& side,
             NoticeBook& notices);

  const KernelSnapshot* start() const { return start_.get(); }
  const KernelSnapshot* end() const { return end_.get(); }
  // The time from which on an end snapshot's bytes are certain: just after the last record.
  Time end_time() const { return end_time_; }

  // Layers of both snapshots, of watched modules, or of the fall-back files.
  void add_text(Builder& builder, const WatchedTexts& watched, FileFinder& files, const PerfData& data);
  void add_symbols(SymbolTable& symbols) const;
  // The file with the kernel's source lines that is proved to be of this kernel, or where its code is and its build-id.
  void add_code(CodeFileMap& code, FileFinder& files, const PerfData& data) const;
  // Where modules are; their files are looked for when a line is asked for.
  void add_module_code(CodeFileMap& code, const FileFinder& files, const PerfData& data) const;
  void add_copies(std::vector<TextCopy>& copies, const WatchedTexts& watched) const;
  void add_modules(std::vector<ModuleLifetime>& lifetimes, const WatchedTexts& watched) const;
  // The kernel's ELF file: --vmlinux, or what the host keeps under the recorded release. nullptr: none with
  // the recorded build-id.
  const TextFile* find_vmlinux(FileFinder& files, const PerfData& data) const;
  // For FileFinder::set_vdso_source().
  std::unique_ptr<TextFile> find_vdso(FileFinder& files, const PerfData& data,
                                      const std::string& build_id) const;

 private:
  void note_module();
  void add_absent(CodeFileMap& code, const PerfData& data, AddrRange range, const std::string& symbol) const;
  std::shared_ptr<const ElfImage> find_source(FileFinder& files, const PerfData& data) const;
  void add_start(Builder& builder, const WatchedTexts& watched);
  void add_end(Builder& builder, const PerfData& data);
  void note_difference(AddrRange range, bool probe);
  void add_end_of_chains(Builder& builder);
  void add_unclaimed(Builder& builder);
  void add_modules_seen(Builder& builder, const WatchedTexts& watched);
  void add_vmlinux(Builder& builder, FileFinder& files, const PerfData& data);
  void find_kallsyms(const std::string& capture_dir);
  // Modules that no copy has, from their files.
  void add_module_files(Builder& builder, FileFinder& files, const PerfData& data);
  void add_module_file(Builder& builder, const KernelMapFact& map, const std::string& name,
                       const TextFile& file, const PerfData& data, const ExportedSymbols* symbols);
  const TextFile* find_module_file(const KernelMapFact& map, const std::string& name, FileFinder& files,
                                   const PerfData& data);

  const CaptureOptions& options_;
  const SideBand& side_;
  NoticeBook& notices_;
  std::unique_ptr<KernelSnapshot> start_, end_;
  bool modules_noted_ = false;
  Time end_time_ = kTimeMax;
  std::shared_ptr<const Kallsyms> kallsyms_;  // of the recording, where there is no copy of kcore
  std::optional<std::map<std::string, std::string>> module_paths_;  // below a folder of modules: by name
  std::vector<Symbol> file_symbols_;                                // of vmlinux
};

// The time up to which pokes are contained in bytes read from memory at an unknown instant: the earliest one,
// not before `earliest`, at which bytes and records agree best. `read` gives the bytes at a range, or
// nothing. `pokes` by time.
Time observed_time(std::span<const Poke> pokes, Time earliest,
                   const std::function<std::span<const uint8_t>(AddrRange)>& read);

}  // namespace asof
