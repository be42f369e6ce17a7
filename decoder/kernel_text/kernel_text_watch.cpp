#include "decoder/kernel_text/kernel_text_watch.h"

#include <fmt/format.h>

#include <algorithm>

#include "decoder/io/reader.h"
#include "decoder/model/image.h"

namespace asof {
namespace {

constexpr size_t kMostModules = 4096;  // each is compared with all others

}  // namespace

WatchedTexts read_watched_texts(const std::string& path, const std::optional<TimeConversion>& time,
                                NoticeBook& notices) {
  WatchedTexts out;
  out.path = path;
  auto file = MappedFile::open(path);
  if (!file) {
    notices.error(file.error().code, path, file.error().reason);
    return out;
  }
  out.owner = *file;
  Reader reader((*file)->bytes());
  size_t modules = 0;
  while (reader.left() > 0) {
    WatchedText text;
    text.file_offset = reader.pos();
    const uint64_t counter = reader.u64();
    const Addr addr = reader.u64();
    const uint32_t length = reader.u32();
    const uint32_t type_word = reader.u32();
    const bool perf_time = (type_word & WatchedText::kPerfTime) != 0;
    text.type = type_word & ~WatchedText::kPerfTime;
    text.bytes = reader.take(length);
    if (!reader.ok()) {
      notices.error(Code::kWatchedBytesTruncated, path,
                    "cut in the middle of a record; the records before it are used", {}, text.file_offset);
      break;
    }
    text.range = range_of(addr, length);
    if (!is_kernel_address(addr) || text.range.size() != length || length == 0) {
      notices.error(Code::kWatchedBytesNotKernel, path,
                    fmt::format("{} bytes at {:#x} are no kernel code; left out", length, addr), {},
                    text.file_offset);
      continue;
    }
    if (text.type == WatchedText::kModule && ++modules > kMostModules) {
      notices.error(Code::kTooManyWatchedModules, path,
                    fmt::format("more than {} modules; the rest is left out", kMostModules), {},
                    text.file_offset);
      break;
    }
    if (!perf_time && !time) {
      notices.error(Code::kWatchedBytesWithoutTimes, path,
                    "a time in it is TSC, and the recording has no conversion; not used", {},
                    text.file_offset);
      continue;
    }
    text.time =
        perf_time ? static_cast<Time>(std::min<uint64_t>(counter, kTimeMax - 1)) : time->to_perf(counter);
    out.texts.push_back(text);
  }
  std::stable_sort(out.texts.begin(), out.texts.end(),
                   [](const WatchedText& a, const WatchedText& b) { return a.time < b.time; });
  return out;
}

}  // namespace asof
