// Something the user should know that did not stop the work. Ends up in `report` and, at -v, on stderr.
#pragma once
#include <cstdint>
#include <string>

#include "textstore/result.h"
#include "textstore/time.h"

namespace asof {

struct Notice {
  enum class Severity : uint8_t { kInfo, kLoss, kError };
  Severity severity = Severity::kInfo;
  Code code = Code::kNone;
  std::string where;
  uint64_t offset = Error::kNoOffset;
  Time time = kTimeMin;
  std::string reason;
  std::string hint;
  uint64_t count = 1;
};

}  // namespace asof
