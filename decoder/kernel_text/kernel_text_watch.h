// Bytes that a watcher read from kcore when a KSYMBOL appeared or a module was loaded (`ksym_text.bin`): the
// only source for text that no record and no snapshot has. Format: docs/bundle.md, section "ksym_text.bin".
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "arch/x86/x86.h"
#include "decoder/io/sideband_notices.h"
#include "textstore/address.h"
#include "textstore/time.h"

namespace asof {

struct WatchedText {
  static constexpr uint32_t kBpf = 1, kOutOfLine = 2, kModule = 100;
  static constexpr uint32_t kPerfTime = 0x80000000U;  // added to the type: the time is perf's, in ns
  Time time = kTimeMin;                               // when it was read
  AddrRange range;
  uint32_t type = 0;
  std::span<const uint8_t> bytes;
  uint64_t file_offset = 0;
};

struct WatchedTexts {
  std::vector<WatchedText> texts;  // by time
  std::shared_ptr<const void> owner;
  std::string path;
};

// Times in the file are perf's, or TSC, which `time` converts; without it those are left out (E-SIDE-504).
// What is damaged ends the file with a notice.
WatchedTexts read_watched_texts(const std::string& path, const std::optional<TimeConversion>& time,
                                NoticeBook& notices);

}  // namespace asof
