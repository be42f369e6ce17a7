#include "tools/cli/shard_option.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string_view>

#include "decoder/blocks/block_format.h"

namespace asof {

namespace {

// The number at the front of `text`, which loses it and the `end` that follows.
std::optional<uint32_t> take_number(std::string_view& text, std::string_view end) {
  uint32_t number = 0;
  const auto [rest, bad] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (bad != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(rest - text.data()));
  if (!text.starts_with(end) || (end.empty() && !text.empty())) return std::nullopt;
  text.remove_prefix(end.size());
  return number;
}

}  // namespace

Result<Shards> parse_shards(const std::string& text) {
  std::string_view rest = text;
  const bool several = text.find('-') != std::string::npos;
  const auto first = take_number(rest, several ? "-" : "/");
  const auto last = first && several ? take_number(rest, "/") : first;
  const auto count = last ? take_number(rest, "") : std::nullopt;
  if (count && *first <= *last && *last < *count && *count <= blocks::kMaxParts / 2)
    return Shards{*first, *last, *count};
  return fail(
      Code::kBadOption, "", Error::kNoOffset,
      fmt::format("--shard {}: K/N is wanted, K from 0 to N - 1, N up to {}", text, blocks::kMaxParts / 2),
      "--shard 0/8 to --shard 7/8 are all of eight; 'asof decode' takes several at once: --shard 0-7/8");
}

Result<Shard> parse_shard(const std::string& text) {
  const auto shards = parse_shards(text);
  if (!shards) return std::unexpected(shards.error());
  if (shards->first == shards->last) return Shard{shards->first, shards->count};
  return fail(Code::kBadOption, "", Error::kNoOffset,
              fmt::format("--shard {}: several at once are for 'asof decode'", text),
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
