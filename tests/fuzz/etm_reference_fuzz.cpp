// Any ETMv4 or ETE trace over text that does not change: what OpenCSD decodes without an error is what asof decodes.
#include "tests/fuzz/decode_all.h"
#include "tests/fuzz/flow_capture.h"

FUZZ_TARGET(etm_reference) {
  asof::fuzz::Input in(bytes);
  auto flow = asof::fuzz::FlowCapture::of_etm(in);
  if (!flow.has_changes()) asof::fuzz::check_as_reference(flow.capture());
}
