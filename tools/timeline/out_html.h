// A timeline as one HTML page that needs nothing else: the script in tools/timeline/html, and the data in it.
// Format of the data: docs/html-view.md.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "decoder/calls/cycle_costs.h"
#include "decoder/calls/timeline.h"
#include "decoder/model/capture.h"

namespace asof {

struct HtmlOptions {
  std::string title;     // of the page; empty: the capture's path
  std::string command;   // that made the page, without detail: to show how to get what is not in it
  bool inlined = false;  // lines of instructions with inlined functions
  const CycleCosts* cycles = nullptr;  // nullptr: were not asked for
  std::vector<TimeBounds> detail;      // where straight runs were requested; sorted, apart
};

// Reports what source lines could not be read.
std::vector<Notice> write_html(const Capture& capture, const Timeline& timeline, const HtmlOptions& options,
                               const std::function<void(std::string_view)>& write);

}  // namespace asof
