// jit-<pid>.dump files, of either byte order.
#include "decoder/user_text/jitdump.h"
#include "tests/fuzz/fuzz.h"

FUZZ_TARGET(jitdump) {
  asof::NoticeBook notices;
  const auto dump = asof::JitDump::load(asof::fuzz::as_file(bytes), notices);
  if (!dump) return;
  uint64_t sum = 0;
  for (const auto& code : (*dump)->code()) {
    FUZZ_CHECK(code.bytes.empty() || code.bytes.size() == code.range.size());
    for (const uint8_t byte : code.bytes) sum += byte;
    sum += code.name.size();
  }
  volatile uint64_t read = sum;
  (void)read;
}
