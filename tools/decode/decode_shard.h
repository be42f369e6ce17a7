// `asof decode --plan PLAN --shard K/N -o PARTS`: one shard's flow as a part that `asof merge` puts together with the
// others. A pure function of the plan, the trace and the options: decoded twice, the bytes are the same. Several shards
// (K-L/N) are decoded one after the other: the plan is opened once, and what was found out about text stays.
#pragma once
#include <string>

#include "tools/cli/options.h"
#include "tools/output/exit_code.h"

namespace asof {

struct ShardOutput {
  std::string folder;  // for the parts, whose names are the shards'
  bool calls = false;  // with what calls add up to
};

ExitCode decode_shards(InputOptions input, const DecodeChoice& choice, Shards shards,
                       const ShardOutput& output, Diagnostics& diagnostics);

}  // namespace asof
