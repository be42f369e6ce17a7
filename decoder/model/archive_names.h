// ArchiveNames: files of an archive are named by their place in it. Where it was unpacked is another place each time, and soon gone.
#pragma once
#include <array>
#include <string>
#include <utility>

namespace asof {

class ArchiveNames {
 public:
  // Of what is no archive: changes nothing.
  ArchiveNames() = default;
  ArchiveNames(std::string unpacked, std::string archive)
      : unpacked_(std::move(unpacked)), archive_(std::move(archive)) {}

  void set(std::string& text) const {
    if (unpacked_.empty()) return;
    for (size_t at = 0; (at = text.find(unpacked_, at)) != std::string::npos; at += archive_.size())
      text.replace(at, unpacked_.size(), archive_);
  }
  // Of an Error or a Notice.
  template <class Problem>
  void set_in(Problem& p) const {
    for (std::string* text : std::array{&p.where, &p.reason, &p.hint}) set(*text);
  }

 private:
  std::string unpacked_, archive_;
};

}  // namespace asof
