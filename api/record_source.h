// What a Records reads from.
#pragma once
#include <cstdint>
#include <span>

#include "asof/records.h"

namespace asof::v0 {

template <class T>
class RecordSource {
 public:
  virtual ~RecordSource() = default;
  // Empty: the end, from then on.
  virtual std::span<const T> next() = 0;
  virtual uint64_t reordered() const { return 0; }
};

}  // namespace asof::v0
