// A recording of processes with mapped files, and what is known of their text and tasks.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "tests/decoder/capture_test_util.h"

namespace asof::test {

inline const std::vector<Bytes> kUnknown = {{}};
inline constexpr Addr kCode = 0x401000;

inline Bytes program(uint8_t fill, uint8_t id) {
  ExecutableSpec spec{.address = kCode,
                      .text = Bytes(64, fill),
                      .symbols = {{"main", kCode, 16}},
                      .build_id = id == 0 ? Bytes() : Bytes(20, id)};
  return make_executable(spec);
}

class User : public ::testing::Test {
 protected:
  void file(const std::string& path, uint8_t fill, uint8_t id) {
    write_bytes(r.dir.path() / ("perf.data/symfs" + path), program(fill, id));
  }
  // The program's code page, mapped.
  void map(int32_t pid, const std::string& path, uint8_t id, const Trailer& t, Addr addr = kCode,
           uint32_t prot = 5) {
    MmapSpec spec{.pid = pid,
                  .tid = pid,
                  .addr = addr,
                  .len = 0x1000,
                  .pgoff = 0x1000,
                  .filename = path,
                  .build_id = id == 0 ? Bytes() : Bytes(20, id),
                  .prot = prot};
    r.writer.mmap2(spec, t);
  }
  void open(const CaptureOptions& options = closed_options()) {
    auto opened = r.open(options);
    ASSERT_TRUE(opened.has_value()) << opened.error().reason;
    capture.emplace(std::move(*opened));
    ASSERT_EQ(capture->streams.size(), 1U);
  }
  Space space_at(Time t) {
    const ContextChange* context = capture->streams[0].context_at(t);
    return context == nullptr ? kNoSpace : context->space;
  }
  bool is_unsure(Addr a, Time t) { return test::is_unsure(*capture->text, space_at(t), a, t); }
  std::vector<Bytes> at(Addr a, Time t) { return contents(*capture->text, space_at(t), a, 1, t); }
  Recording r;
  std::optional<Capture> capture;
};

}  // namespace asof::test
