// GzipWriter: bytes in, gzip stream out.
#pragma once
#include <functional>
#include <memory>
#include <string_view>

namespace asof {

class GzipWriter {
 public:
  using Write = std::function<void(std::string_view)>;
  explicit GzipWriter(Write write);
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
