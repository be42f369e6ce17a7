// What there is to do about a code in a capture, in the terms of whoever recorded it: the error table's remedies are
// those of perf and Intel PT.
#pragma once
#include <string_view>

#include "decoder/model/capture.h"
#include "textstore/code.h"

namespace asof {

std::string_view remedy_for(const Capture& capture, Code code);

}  // namespace asof
