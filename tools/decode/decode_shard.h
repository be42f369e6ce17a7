// `asof decode --plan PLAN --shard K/N -o PARTS`: one shard's flow as a part that `asof merge` puts together with the
// others. A pure function of the plan, the trace and the options: decoded twice, the bytes are the same.
#pragma once
#include <string>

#include "tools/cli/options.h"
#include "tools/output/exit_code.h"

namespace asof {

struct ShardOutput {
  std::string folder;  // for the part, whose name is the shard's
  bool calls = false;  // with what calls add up to
};

ExitCode decode_shard(InputOptions input, DecodeChoice choice, Shard shard, const ShardOutput& output,
                      Diagnostics& diagnostics);

}  // namespace asof
