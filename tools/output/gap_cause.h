// What gaps of one code have in common: how many there are, how much trace they hold, and where the first one is.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "arch/arch.h"
#include "decoder/io/notice.h"
#include "decoder/model/capture.h"

namespace asof {

struct GapCause {
  uint64_t count = 0;
  uint64_t bytes = 0;    // of trace passed over
  uint64_t time = 0;     // ns lost, as far as known
  uint64_t in_user = 0;  // at user addresses
  std::string first;     // place and evidence of the first one

  void add(const Capture& capture, const Stream& stream, const Gap& gap);
};

// One of each code, for verbs that do not tell of each gap. `where`: the capture, where there are several.
std::vector<Notice> notices_of(const std::map<Code, GapCause>& causes, const std::string& where = {});

}  // namespace asof
