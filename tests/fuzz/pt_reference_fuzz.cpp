// Any Intel PT over text that does not change: what libipt decodes without an error is what asof decodes.
#include "tests/fuzz/decode_all.h"
#include "tests/fuzz/flow_capture.h"

FUZZ_TARGET(pt_reference) {
  asof::fuzz::Input in(bytes);
  auto flow = asof::fuzz::FlowCapture::of_pt(in);
  if (!flow.has_changes()) asof::fuzz::check_as_reference(flow.capture());
}
