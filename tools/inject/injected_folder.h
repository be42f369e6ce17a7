// The output of `asof inject` beside a copy of the kernel's text: perf finds that in the folder of a recording, as
// perf record --kcore makes it, and nowhere else.
#pragma once
#include <string>

#include "decoder/perf/perf_data.h"
#include "textstore/result.h"

namespace asof {

// Where to write the samples: `output`, or, of a recording with copies of kcore, the file `data` in a folder of that name.
// Makes the folder, with the same copies.
Result<std::string> prepare_output(const std::string& output, const PerfData& source);

}  // namespace asof
