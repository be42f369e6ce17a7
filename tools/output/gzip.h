// GzipWriter: bytes in, gzip stream out.
#pragma once
#include <functional>
#include <memory>
#include <string_view>

namespace asof {

class GzipWriter {
 public:
  using Write = std::function<void(std::string_view)>;
  // Readers unpack all levels alike; for what is written once and kept, the higher one takes a fifth less room
  // at three times the time.
  static constexpr int kFast = 1, kSmall = 6;
  explicit GzipWriter(Write write, int level = kFast);
  ~GzipWriter();
  GzipWriter(const GzipWriter&) = delete;
  GzipWriter& operator=(const GzipWriter&) = delete;

  void write(std::string_view bytes);
  void finish();

 private:
  void deflate_all(int flush);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace asof
