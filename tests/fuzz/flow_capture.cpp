#include "tests/fuzz/flow_capture.h"

#include <algorithm>

#include "textstore/builder.h"

namespace asof::fuzz {
namespace {

constexpr uint64_t kMostText = 1024;
constexpr size_t kMostPatched = 8;
constexpr Time kTick = 4096;  // ns

}  // namespace

FlowCapture::FlowCapture(Input& in, const PatchRules& rules) : choice_(in.byte()) {
  std::vector<Change> changes((choice_ >> 6U) & 3U);
  for (Change& c : changes) {
    c.at = in.number(2) % kMostText;
    c.time = static_cast<Time>(in.number(2)) * kTick;
    c.bytes.resize(1 + in.byte() % kMostPatched);
    for (uint8_t& b : c.bytes) b = in.byte();
  }
  std::ranges::stable_sort(changes, {}, &Change::time);
  text_.resize(in.number(2) % (kMostText + 1));
  for (uint8_t& b : text_) b = in.byte();
  build_text(changes, rules);
  add_trace(in.rest());
}

void FlowCapture::build_text(const std::vector<Change>& changes, const PatchRules& rules) {
  Builder builder;
  builder.set_patch_rules(rules);
  builder.all_rings_recorded();
  Layer layer;
  layer.range = {kText, kText + text_.size()};
  layer.bytes = text_;
  if (!text_.empty()) builder.add_layer(layer);
  std::vector<uint8_t> memory = text_;
  std::vector<std::vector<uint8_t>> old;  // until build()
  old.reserve(changes.size());
  for (const Change& c : changes) {
    if (c.at + c.bytes.size() > memory.size()) continue;
    const auto first = memory.begin() + static_cast<std::ptrdiff_t>(c.at);
    old.emplace_back(first, first + static_cast<std::ptrdiff_t>(c.bytes.size()));
    builder.add_poke({.addr = kText + c.at, .time = c.time, .old_bytes = old.back(), .new_bytes = c.bytes});
    std::ranges::copy(c.bytes, first);
    changes_ = true;
  }
  capture_.text = std::move(builder).build();
}

void FlowCapture::add_trace(Bytes trace) {
  Stream stream;
  stream.name = "cpu0";
  stream.cpu = 0;
  // In two pieces: packets may lie across their border.
  const size_t half = (choice_ & 1) != 0 ? trace.size() / 2 : trace.size();
  if (half != 0) stream.pieces.push_back({.bytes = trace.first(half)});
  if (half != trace.size())
    stream.pieces.push_back(
        {.offset = half, .bytes = trace.subspan(half), .discontinuity = (choice_ & 2) != 0});
  capture_.streams.push_back(std::move(stream));
}

}  // namespace asof::fuzz
