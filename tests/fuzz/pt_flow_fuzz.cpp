// Any Intel PT over any text: decoded the same with and without caches, by one thread or four.
#include "arch/x86/patch_rules.h"
#include "tests/fuzz/decode_all.h"
#include "tests/fuzz/flow_capture.h"

FUZZ_TARGET(pt_flow) {
  asof::fuzz::Input in(bytes);
  asof::fuzz::FlowCapture flow(in, asof::x86::kPatchRules);
  asof::Capture& capture = flow.capture();
  capture.machine = "x86_64";
  capture.x86.cpu = {true, 6, 0x5e, 3};
  capture.x86.mtc_freq = 3;
  capture.x86.tsc_ctc_n = 2;
  capture.x86.tsc_ctc_d = 1;
  capture.x86.max_nonturbo = 30;
  capture.x86.no_ret_compression = (flow.choice() & 4) != 0;
  capture.x86.no_tnt = (flow.choice() & 8) != 0;
  if ((flow.choice() & 16) == 0) capture.x86.time = asof::TimeConversion{};
  asof::fuzz::check_same_flow(capture, (flow.choice() & 32) != 0);
}
