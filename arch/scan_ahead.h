// ScanAhead: what some SegmentSources can do beside giving segments one by one.
#pragma once
#include <cstddef>

namespace asof {

class ScanAhead {
 public:
  virtual ~ScanAhead() = default;
  // Does a part of the work of later calls of SegmentSource::next(). Thread-safe, beside next(), too. False: there is
  // nothing to do, or `most` parts are done that next() has not come to.
  virtual bool scan_ahead(size_t most) = 0;
};

}  // namespace asof
