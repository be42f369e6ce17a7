#include "tools/packets/packet_filter.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>

#include "tools/cli/matches.h"
#include "tools/cli/near_names.h"
#include "tools/cli/options.h"

namespace asof {
namespace {

constexpr std::string_view kPatternSigns = "*?[";

// Lower case without punctuation, but for that of patterns.
std::string normal(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c >= 'A' && c <= 'Z')
      out += static_cast<char>(c - 'A' + 'a');
    else if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || kPatternSigns.contains(c))
      out += c;
  }
  return out;
}

// Words of the SDM and of other decoders for what has another name here.
std::string_view alias(std::string_view word) {
  if (word == "ptw") return "ptwrite";
  if (word == "stop") return "tracestop";
  if (word == "ccnt") return "cyclecount";
  if (word == "ite") return "instrumentation";
  if (word == "ts") return "timestamp";
  return word;
}

std::vector<uint8_t> types_of(std::string_view given, std::span<const std::string_view> names) {
  const std::string small = normal(given);
  const std::string_view word = alias(small);
  std::vector<uint8_t> same, family, pattern;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string name = normal(names[i]);
    if (name == word) same.push_back(static_cast<uint8_t>(i));
    if (normal(names[i].substr(0, names[i].find('.'))) == word) family.push_back(static_cast<uint8_t>(i));
    if (matches_name(word, name)) pattern.push_back(static_cast<uint8_t>(i));
  }
  return !same.empty() ? same : !family.empty() ? family : pattern;
}

}  // namespace

Result<TypeFilter> TypeFilter::read(const std::string& list, std::span<const std::string_view> names) {
  TypeFilter out;
  const std::vector<std::string> words = split_list(list);
  const auto leaves_out = [](std::string_view w) { return w.starts_with('^'); };
  out.passes_.fill(std::ranges::all_of(words, leaves_out));
  for (const std::string& given : words) {
    const bool no = leaves_out(given);
    const std::string text = given.substr(no ? 1 : 0);
    const auto types = types_of(text, names);
    if (types.empty()) {
      const std::string near = did_you_mean(text, names);
      return fail(Code::kBadOption, "", Error::kNoOffset, fmt::format("--type: no packet is a {}", text),
                  fmt::format("{}{}there are {}", near, near.empty() ? "" : " ", fmt::join(names, ", ")));
    }
    for (const uint8_t t : types) out.passes_[t] = !no;
    if (!no) out.words_.push_back({text, types});
  }
  return out;
}

std::vector<std::string> TypeFilter::unseen(std::span<const uint64_t> seen) const {
  std::vector<std::string> out;
  for (const Word& w : words_) {
    if (std::ranges::none_of(w.types, [&](uint8_t t) { return seen[t] != 0; })) out.push_back(w.text);
  }
  return out;
}

Result<OffsetRange> parse_offset_range(const std::string& text) {
  const auto bad = [&](std::string_view why) {
    return fail(Code::kBadOption, "", Error::kNoOffset, fmt::format("--offset: '{}' {}", text, why),
                "like 0x1000,0x2000; either may be missing");
  };
  OffsetRange out;
  const size_t comma = text.find(',');
  if (comma == std::string::npos) return bad("is not A,B");
  const auto number = [](std::string_view s, uint64_t& to) {
    if (s.empty()) return true;
    const bool hex = s.starts_with("0x") || s.starts_with("0X");
    if (hex) s.remove_prefix(2);
    const auto r = std::from_chars(s.data(), s.data() + s.size(), to, hex ? 16 : 10);
    return r.ec == std::errc() && r.ptr == s.data() + s.size();
  };
  const std::string_view all(text);
  if (!number(all.substr(0, comma), out.begin) || !number(all.substr(comma + 1), out.end))
    return bad("is not two numbers");
  if (out.begin >= out.end) return bad("is empty");
  return out;
}

bool TaskFilter::wanted(const Stream& stream, const ContextChange* task, Time time) const {
  if (task != nullptr) return choice_.has(tasks_, task->pid, task->tid, time);
  // A thread's own stream may have no record of what ran on it.
  return stream.tid >= 0 && choice_.pids.empty() && choice_.has(tasks_, -1, stream.tid, time);
}

bool TaskFilter::passes(const Stream& stream, Time time) {
  if (!choice_.any()) return true;
  if (&stream == stream_ && time >= from_ && time < until_) return answer_;
  stream_ = &stream;
  const ContextChange* const task = stream.context_at(time);
  answer_ = wanted(stream, task, time);
  from_ = time;
  until_ = kTimeMax;
  if (task != nullptr) {
    const auto next = std::ranges::upper_bound(stream.contexts, time, {}, &ContextChange::time);
    if (next != stream.contexts.end()) until_ = next->time;
  }
  // A thread may take another name while it runs.
  if (!choice_.comms.empty()) until_ = from_;
  return answer_;
}

}  // namespace asof
