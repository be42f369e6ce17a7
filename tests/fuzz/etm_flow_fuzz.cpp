// Any ETMv4 or ETE trace over any text: decoded the same with and without caches, by one thread or four.
#include "tests/fuzz/decode_all.h"
#include "tests/fuzz/flow_capture.h"

FUZZ_TARGET(etm_flow) {
  asof::fuzz::Input in(bytes);
  auto flow = asof::fuzz::FlowCapture::of_etm(in);
  asof::fuzz::check_same_flow(flow.capture(), flow.wants_threads());
}
