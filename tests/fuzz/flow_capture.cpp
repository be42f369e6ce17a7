#include "tests/fuzz/flow_capture.h"

#include <algorithm>

#include "arch/arm64/patch_rules.h"
#include "arch/x86/patch_rules.h"
#include "textstore/builder.h"

namespace asof::fuzz {
namespace {

constexpr uint64_t kMostText = 1024;
constexpr size_t kMostPatched = 8;
constexpr Time kTick = 4096;  // ns

}  // namespace

FlowCapture FlowCapture::of_pt(Input& in) {
  FlowCapture flow(in, x86::kPatchRules);
  Capture& capture = flow.capture_;
  capture.machine = "x86_64";
  capture.x86.cpu = {true, 6, 0x5e, 3};
  capture.x86.mtc_freq = 3;
  capture.x86.tsc_ctc_n = 2;
  capture.x86.tsc_ctc_d = 1;
  capture.x86.max_nonturbo = 30;
  capture.x86.no_ret_compression = (flow.choice_ & 4U) != 0;
  capture.x86.no_tnt = (flow.choice_ & 8U) != 0;
  if ((flow.choice_ & 16U) == 0) capture.x86.time = TimeConversion{};
  return flow;
}

FlowCapture FlowCapture::of_etm(Input& in) {
  FlowCapture flow(in, arm64::kPatchRules);
  Capture& capture = flow.capture_;
  capture.machine = "aarch64";
  arm64::Source source;
  source.protocol = (flow.choice_ & 4U) != 0 ? arm64::Protocol::kEte : arm64::Protocol::kEtm4;
  source.idr0 = (flow.choice_ & 8U) != 0 ? 0x280006e1 : 0x28000ea1;
  source.idr1 = 0x4100f403;
  source.idr2 = 0x488;
  source.configr = (flow.choice_ & 16U) != 0 ? 0x1801 : 0x801;  // TS, with and without the return stack
  source.devarch = 0x47735a13;
  capture.arm64.sources.push_back(source);
  return flow;
}

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
    has_changes_ = true;
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
