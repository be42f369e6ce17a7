// A decode tree of OpenCSD for one trace unit.
#pragma once
#include <memory>

#include "arch/arm64/config.h"

namespace asof::arm64 {

struct TreeDeleter {
  unsigned char id = 0;  // of its only decoder
  void operator()(void* tree) const;
};
using Tree = std::unique_ptr<void, TreeDeleter>;

// Empty: OpenCSD does not take this configuration. `only_packets`: packets are read, code is not walked.
Tree make_tree(const Source& source, bool only_packets);

}  // namespace asof::arm64
