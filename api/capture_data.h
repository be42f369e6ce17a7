// What handles of one capture share. Const once open() has returned.
#pragma once
#include <vector>

#include "asof/capture.h"
#include "decoder/model/capture.h"

namespace asof::v0 {

struct CaptureData {
  asof::Capture capture;
  CaptureInfo info;
  std::vector<Notice> notices;
  std::vector<TextChange> changes;
};

// Of a capture that decodes: open() has checked.
inline const asof::TextStore& text_of(const CaptureData& data) { return *data.capture.text; }

}  // namespace asof::v0
