#include "tools/timeline/html_pack.h"

#include <nettle/base64.h>

#include "tools/output/gzip.h"

namespace asof {

std::string base64(std::string_view bytes) {
  std::string out(BASE64_ENCODE_RAW_LENGTH(bytes.size()), 0);
  base64_encode_raw(out.data(), bytes.size(), reinterpret_cast<const uint8_t*>(bytes.data()));
  return out;
}

std::string packed(std::string_view bytes) {
  std::string out;
  const GzipWriter::Write append = [&](std::string_view piece) { out += piece; };
  GzipWriter gzip(append, GzipWriter::kSmall);
  gzip.write(bytes);
  gzip.finish();
  return base64(out);
}

}  // namespace asof
