#include "tools/disasm/source_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "textstore/plain_text.h"

namespace asof {

std::string full_source_text(const SourceLine& source) {
  return source ? fmt::format("{}:{}", plain_text(source.file), source.line) : std::string();
}

std::string source_text(const SourceLine& source) {
  if (!source) return {};
  return fmt::format("{}:{}", plain_text(source.file.substr(source.file.rfind('/') + 1)), source.line);
}

std::string inlined_text(std::span<const SourceFrame> frames) {
  if (frames.empty()) return {};
  if (frames.size() == 1) return source_text(frames[0].line);
  std::string out;
  for (const SourceFrame& f : frames) {
    if (!out.empty()) out += " (inlined by) ";
    out += f.function.empty() ? "[unknown]" : f.function;
    if (f.line) out += " " + source_text(f.line);
  }
  return out;
}

std::vector<std::string> inlined_names(std::span<const SourceFrame> frames) {
  std::vector<std::string> out;
  for (auto f = frames.rbegin(); f != frames.rend(); ++f)
    out.push_back(f->function.empty() ? "[unknown]" : f->function);
  return out;
}

std::vector<Notice> SharedSourceLines::take_notices() {
  const std::scoped_lock lock(mutex_);
  std::vector<Notice> all = lines_.take_notices();
  std::ranges::stable_sort(all, {}, [](const Notice& n) { return std::tie(n.where, n.code, n.reason); });
  return all;
}

std::string SharedSourceLines::file_at(Space space, Addr a, Time t) {
  const std::scoped_lock lock(mutex_);
  const auto place = lines_.place_of(space, a, t);
  return place ? capture_.code.files[place->file].recorded : std::string();
}

}  // namespace asof
