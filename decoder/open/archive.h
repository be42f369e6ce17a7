// Packed captures: one archive (tar, plain or compressed by zstd, gzip or xz) with all that decoding needs,
// as `asof pack` writes it (docs/formats.md, "Packed captures"). libarchive reads it; what an archive may do
// is decided here: it comes from others, so it gets regular files below one new directory, links that stay in it, and nothing else.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "decoder/model/capture.h"
#include "textstore/result.h"

namespace asof {

// A directory that is removed with this.
class TemporaryTree {
 public:
  // In $TMPDIR, /var/tmp or /tmp, readable by its owner alone.
  static Result<std::shared_ptr<TemporaryTree>> make();
  ~TemporaryTree();
  // All that there are: for a process that ends without destructors.
  static void remove_all();
  TemporaryTree(const TemporaryTree&) = delete;
  TemporaryTree& operator=(const TemporaryTree&) = delete;
  const std::string& path() const { return path_; }

 private:
  TemporaryTree() = default;
  std::string path_;  // empty: not made yet
};

// By its first bytes: a regular file that is a tar archive, or compressed by one of the three.
bool is_archive(const std::string& path);

// Unpacks below the existing directory `to`. An entry that is no regular file or directory and no link that
// stays below `to`, whose name leads out of `to` or occurs twice, more than kMostEntries of them, or far more bytes than such an archive can
// hold (E-FILE-132), and an archive that is cut or damaged (E-FILE-131) are errors; what was unpacked before
// stays. A file that is there already is not replaced (E-FILE-090). The number of files.
Result<size_t> unpack_archive(const std::string& path, const std::string& to);

// Of an unpacked capture below `root`: what to open, and options for the files beside it, where `options`
// does not say otherwise.
Result<std::string> unpacked_capture(const std::string& root, CaptureOptions& options);

}  // namespace asof
