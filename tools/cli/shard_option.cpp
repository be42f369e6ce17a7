#include "tools/cli/shard_option.h"

#include <fmt/format.h>

#include <charconv>

#include "decoder/blocks/block_format.h"

namespace asof {

Result<Shard> parse_shard(const std::string& text) {
  Shard s;
  const char* const end = text.data() + text.size();
  const auto [slash, bad] = std::from_chars(text.data(), end, s.index);
  if (bad == std::errc{} && slash != end && *slash == '/') {
    const auto [rest, also_bad] = std::from_chars(slash + 1, end, s.count);
    if (also_bad == std::errc{} && rest == end && s.index < s.count && s.count <= blocks::kMaxParts / 2)
      return s;
  }
  return fail(
      Code::kBadOption, "", Error::kNoOffset,
      fmt::format("--shard {}: K/N is wanted, K from 0 to N - 1, N up to {}", text, blocks::kMaxParts / 2),
      "--shard 0/8 to --shard 7/8 are all of eight");
}

Result<void> check_call_shard(const Capture& capture, const std::string& time) {
  if (!capture.blocks)
    return fail(Code::kBadOption, capture.path, Error::kNoOffset, "--shard needs a block stream",
                "make one: asof decode --format blocks --calls -o FILE, or asof merge");
  if (!time.empty())
    return fail(Code::kBadOption, "", Error::kNoOffset,
                "--shard is a part of all calls: --time does not go with it");
  return {};
}

std::string shard_name(Shard s) {
  const size_t digits = std::to_string(s.count - 1).size();
  return fmt::format("shard-{:0{}}-of-{}", s.index, digits, s.count);
}

}  // namespace asof
