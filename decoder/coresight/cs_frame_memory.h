// CsFrameMemory: what the index pass found of a recording that grows, so that opening it again passes over new frames only,
// and the others need not be kept once their trace was given out.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "decoder/coresight/cs_frames.h"

namespace asof {

class CsFrameMemory {
 public:
  // CsFrames::index() of the frames of one ring, each time with more of the same. Where sections are others than before,
  // all are passed over again.
  std::shared_ptr<const CsFrames> index(size_t ring, std::vector<FrameSection> sections,
                                        FrameAlignment alignment);

 private:
  std::map<size_t, std::shared_ptr<CsFrameState>> rings_;
};

}  // namespace asof
