// Any ETMv4 or ETE trace over any text: decoded the same with and without caches, by one thread or four.
#include "arch/arm64/patch_rules.h"
#include "tests/fuzz/decode_all.h"
#include "tests/fuzz/flow_capture.h"

FUZZ_TARGET(etm_flow) {
  asof::fuzz::Input in(bytes);
  asof::fuzz::FlowCapture flow(in, asof::arm64::kPatchRules);
  asof::Capture& capture = flow.capture();
  capture.machine = "aarch64";
  asof::arm64::Source source;
  source.protocol = (flow.choice() & 4) != 0 ? asof::arm64::Protocol::kEte : asof::arm64::Protocol::kEtm4;
  source.idr0 = (flow.choice() & 8) != 0 ? 0x280006e1 : 0x28000ea1;
  source.idr1 = 0x4100f403;
  source.idr2 = 0x488;
  source.configr = (flow.choice() & 16) != 0 ? 0x1801 : 0x801;  // TS, with and without the return stack
  source.devarch = 0x47735a13;
  capture.arm64.sources.push_back(source);
  asof::fuzz::check_same_flow(capture, (flow.choice() & 32) != 0);
}
