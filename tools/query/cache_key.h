// What the tables of a query depend on, as text: a kept answer is used only where all of it is the same.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "decoder/io/files_read.h"
#include "tools/cli/options.h"

namespace asof {

// "S:" and the size in front of each, so that no two lists of fields make the same text.
class KeyText {
 public:
  KeyText& add(std::string_view text);
  KeyText& add(uint64_t number) { return add(std::to_string(number)); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// The files as they were when they were read, and a hash of each whole content. Empty: one is not what it was,
// was written while it was read, or is no file that can be read again.
std::optional<std::string> files_text(const std::vector<FileState>& files);

// This program, the libraries that are loaded now, and the code that the kernel maps into processes.
std::string program_text();
// Options that change what is decoded; `time` and `cpus` as they were given.
std::string options_text(const InputOptions& input, const DecodeChoice& choice, const std::string& time,
                         bool detail);

}  // namespace asof
