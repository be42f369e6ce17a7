// The formats of tracepoints as text, for libraries that read those (feature TRACING_DATA; trace_formats.h).
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace asof {

struct TraceTexts {
  bool big_endian = false;
  uint8_t long_size = 8;
  uint32_t page_size = 4096;
  struct Format {
    std::string_view system, text;
  };
  std::vector<Format> formats;  // of events; they point into the feature
};
TraceTexts read_trace_texts(std::span<const uint8_t> body);

}  // namespace asof
