// Source lines and inlined functions as text.
#pragma once
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "decoder/lines/source_lines.h"

namespace asof {

// --source and --inline.
struct SourceChoice {
  bool lines = false, inlined = false;
  bool any() const { return lines || inlined; }
};

// "main.c:12"; empty when it is not known.
std::string source_text(const SourceLine& source);
// The same with the folder.
std::string full_source_text(const SourceLine& source);
// "twice main.c:4 (inlined by) even main.c:9", as addr2line -ip has it; the line alone where nothing was inlined.
std::string inlined_text(std::span<const SourceFrame> frames);
// Outermost first: "even", then what was inlined into it. Empty: no function is known.
std::vector<std::string> inlined_names(std::span<const SourceFrame> frames);

// SourceLines for several threads. Answers do not depend on who asks first, but for files with more lines than any
// real one has.
class SharedSourceLines {
 public:
  explicit SharedSourceLines(const Capture& capture) : capture_(capture), lines_(capture) {}
  SourceLine at(Space space, Addr a, Time t) {
    const std::scoped_lock lock(mutex_);
    return lines_.at(space, a, t);
  }
  std::vector<SourceFrame> frames_at(Space space, Addr a, Time t) {
    const std::scoped_lock lock(mutex_);
    const auto frames = lines_.frames_at(space, a, t);
    return {frames.begin(), frames.end()};
  }
  // The file of code there, as the traced system named it; empty: not known.
  std::string file_at(Space space, Addr a, Time t);
  // In an order that does not depend on threads.
  std::vector<Notice> take_notices();

 private:
  const Capture& capture_;
  std::mutex mutex_;
  SourceLines lines_;
};

}  // namespace asof
