// "K/N": one of N shards. "K-L/N": those from K to L.
#pragma once
#include <string>

#include "decoder/model/capture.h"
#include "decoder/model/shard.h"
#include "textstore/result.h"

namespace asof {

// "K/N", K from 0 to N - 1.
Result<Shard> parse_shard(const std::string& text);
// "K/N", or "K-L/N", K to L from 0 to N - 1.
Result<Shards> parse_shards(const std::string& text);
// Whether single calls of `capture` are there by shard: `time` is what --time says.
Result<void> check_call_shard(const Capture& capture, const std::string& time);
// "shard-07-of-16": names of all shards sort in their order.
std::string shard_name(Shard shard);

}  // namespace asof
