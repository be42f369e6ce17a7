// The file of a mapping: found in the usual locations, and used only when it is the one that ran. Locations
// and layouts as in perf: build-id cache (tools/perf/util/build-id.c), --symfs, the recorded path.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "decoder/io/sideband_notices.h"
#include "decoder/model/capture.h"
#include "decoder/model/image.h"

namespace asof {

// A file that may serve as text.
struct TextFile {
  std::string path;
  std::string build_id;                 // of the file; empty: none
  std::span<const uint8_t> bytes;       // whole file
  std::shared_ptr<const ElfImage> elf;  // nullptr: not ELF
  std::shared_ptr<const void> owner;    // keeps `bytes`
  bool as_built = false;                // memory may have had it with the kernel's patches
  bool doubtful = false;                // another build-id, or none and perhaps changed since
};

// Lower-case hex without anything else ("6AA9A4E2-6F28..." and "6aa9a4e26f28..." are one id).
std::string normal_build_id(const std::string& text);
// Build-ids of 16 bytes are stored padded with zeros to 20 by older records: those are equal too.
bool same_build_id(const std::string& a, const std::string& b);

// Where it ends before its headers say, a notice says so (E-FILE-306).
void note_cut_image(const ElfImage& elf, NoticeBook& notices);
// Where a file of lines, which the kernel wrote, ends inside of one.
void note_cut_lines(const std::string& path, NoticeBook& notices);

class FileFinder {
 public:
  // `capture_file`: its folder may hold symfs/; its mtime is the latest the recording can be.
  FileFinder(const CaptureOptions& options, const std::string& capture_file, const std::string& capture_dir,
             NoticeBook& notices);

  // The file recorded as `path` with `build_id` (empty: the capture has none). nullptr: there is none, or
  // none that agrees; a Notice with both ids says so, once per (path, id). `explicit_file`: the capture says
  // where the copy is.
  const TextFile* find(const std::string& path, const std::string& build_id,
                       const std::string& explicit_file = {});
  // Called for [vdso] with its build-id (empty: not recorded) where no file serves; nullptr: nothing that is
  // proved to be of the recorded kernel.
  using VdsoSource = std::function<std::unique_ptr<TextFile>(const std::string& build_id)>;
  void set_vdso_source(VdsoSource source) { vdso_source_ = std::move(source); }
  const std::string& symfs() const { return symfs_; }  // empty: none
  // Where debug files may be (CodeFileMap).
  void add_debug_places(CodeFileMap& code) const;
  // The same without a notice when nothing is found.
  const TextFile* find_quietly(const std::string& path, const std::string& build_id,
                               const std::string& explicit_file);

 private:
  struct Candidate {
    std::string path;
    bool needs_id = false;  // serves only when the recorded id proves it
  };
  std::vector<Candidate> candidates(const std::string& path, const std::string& build_id,
                                    const std::string& explicit_file) const;
  void add_cached(const std::string& path, const std::string& id, std::vector<Candidate>& out) const;
  std::unique_ptr<TextFile> search(const std::string& path, const std::string& build_id,
                                   const std::string& explicit_file, bool quiet);
  bool unchanged_since(const std::string& file) const;
  void note_end(const TextFile& file);
  void warn_unverified(TextFile& file, const std::string& path);

  const CaptureOptions& options_;
  std::string symfs_;
  bool symfs_given_ = false;
  std::vector<std::string> caches_;
  std::optional<int64_t> capture_mtime_;  // ns
  VdsoSource vdso_source_;
  NoticeBook& notices_;
  std::map<std::pair<std::string, std::string>, std::unique_ptr<TextFile>> found_;
};

}  // namespace asof
