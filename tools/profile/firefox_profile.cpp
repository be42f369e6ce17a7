#include "tools/profile/firefox_profile.h"

#include <fmt/format.h>

#include "tools/output/json.h"

namespace asof {
namespace {

// "key":[...] of `count` values, each by its index.
void put_column(std::string& out, std::string_view key, size_t count,
                const std::function<void(std::string&, size_t)>& value) {
  if (out.back() != '{') out += ',';
  fmt::format_to(std::back_inserter(out), "\"{}\":[", key);
  for (size_t i = 0; i < count; ++i) {
    if (i != 0) out += ',';
    value(out, i);
  }
  out += ']';
}

// A column whose values are all the same.
void put_same(std::string& out, std::string_view key, size_t count, std::string_view value) {
  put_column(out, key, count, [&](std::string& to, size_t) { to += value; });
}

void put_indices(std::string& out, std::string_view key, size_t count) {
  put_column(out, key, count, [](std::string& to, size_t i) { to += std::to_string(i); });
}

std::string table(size_t length) { return fmt::format("{{\"length\":{}", length); }

// Nanoseconds in milliseconds, exactly.
std::string milliseconds(uint64_t ns) { return fmt::format("{}.{:06}", ns / 1'000'000, ns % 1'000'000); }

}  // namespace

void FirefoxProfile::add(std::span<const uint32_t> stack, const Cost& own) {
  const uint64_t weight = weight_of(own, weight_);
  if (weight == 0 || stack.empty()) return;
  const std::string& track = split_ ? names_[stack.front()] : "all";
  if (split_ && stack.size() > 1) stack = stack.subspan(1);
  if (threads_.empty() || threads_.back().name != track) threads_.emplace_back().name = track;
  Thread& t = threads_.back();
  int64_t at = kNone;
  for (const uint32_t name : stack) {
    const auto [f, new_function] =
        t.function_ids.try_emplace(name, static_cast<uint32_t>(t.functions.size()));
    if (new_function) t.functions.push_back(name);
    const auto [s, new_stack] =
        t.stack_ids.try_emplace({at, f->second}, static_cast<uint32_t>(t.stacks.size()));
    if (new_stack) t.stacks.push_back({at, f->second});
    at = s->second;
  }
  t.samples.push_back({static_cast<uint32_t>(at), weight});
}

std::string FirefoxProfile::thread_text(const Thread& t, size_t index) const {
  const size_t functions = t.functions.size(), stacks = t.stacks.size(), samples = t.samples.size();
  const bool time = weight_ == StackWeight::kNanoseconds;
  std::string out = "{\"name\":";
  put_json_string(out, t.name);
  out += fmt::format(
      ",\"isMainThread\":true,\"processType\":\"default\",\"processName\":\"asof\",\"pid\":\"0\",\"tid\":{},"
      "\"processStartupTime\":0,\"processShutdownTime\":null,\"registerTime\":0,\"unregisterTime\":null,"
      "\"pausedRanges\":[],\"samples\":{},\"weightType\":\"{}\"",
      index, table(samples), time ? "tracing-ms" : "samples");
  put_column(out, "stack", samples,
             [&](std::string& to, size_t i) { to += std::to_string(t.samples[i].stack); });
  put_column(out, "weight", samples, [&](std::string& to, size_t i) {
    to += time ? milliseconds(t.samples[i].weight) : std::to_string(t.samples[i].weight);
  });
  uint64_t before = 0;
  put_column(out, "time", samples, [&](std::string& to, size_t i) {
    to += milliseconds(before);
    before += time ? t.samples[i].weight : 1'000'000;
  });
  out += "},\"stackTable\":" + table(stacks);
  put_column(out, "prefix", stacks, [&](std::string& to, size_t i) {
    to += t.stacks[i].prefix == kNone ? "null" : std::to_string(t.stacks[i].prefix);
  });
  put_column(out, "frame", stacks,
             [&](std::string& to, size_t i) { to += std::to_string(t.stacks[i].function); });
  for (const char* key : {"category", "subcategory"}) put_same(out, key, stacks, "0");
  out += "},\"frameTable\":" + table(functions);  // one frame for each function
  put_indices(out, "func", functions);
  put_same(out, "address", functions, "-1");
  for (const char* key : {"category", "subcategory", "inlineDepth"}) put_same(out, key, functions, "0");
  for (const char* key : {"nativeSymbol", "innerWindowID", "implementation", "line", "column"})
    put_same(out, key, functions, "null");
  out += "},\"funcTable\":" + table(functions);
  put_indices(out, "name", functions);
  for (const char* key : {"isJS", "relevantForJS"}) put_same(out, key, functions, "false");
  put_same(out, "resource", functions, "-1");
  for (const char* key : {"fileName", "lineNumber", "columnNumber"}) put_same(out, key, functions, "null");
  out += "},\"resourceTable\":" + table(0);
  for (const char* key : {"lib", "name", "host", "type"}) put_same(out, key, 0, "");
  out += "},\"nativeSymbols\":" + table(0);
  for (const char* key : {"address", "functionSize", "libIndex", "name"}) put_same(out, key, 0, "");
  out += "},\"markers\":" + table(0);
  for (const char* key : {"category", "data", "endTime", "name", "phase", "startTime"})
    put_same(out, key, 0, "");
  out += '}';
  put_column(out, "stringArray", functions,
             [&](std::string& to, size_t i) { put_json_string(to, names_[t.functions[i]]); });
  return out + "}";
}

void FirefoxProfile::write(const std::function<void(std::string_view)>& write) const {
  write(
      "{\"meta\":{\"preprocessedProfileVersion\":48,\"version\":29,\"interval\":1,\"startTime\":0,"
      "\"processType\":0,"
      "\"product\":\"asof\",\"stackwalk\":1,\"symbolicated\":true,\"usesOnlyOneStackType\":true,\"debug\":"
      "false,"
      "\"sourceCodeIsNotOnSearchfox\":true,\"markerSchema\":[],"
      "\"categories\":[{\"name\":\"Other\",\"color\":\"grey\",\"subcategories\":[\"Other\"]}]},"
      "\"libs\":[],\"threads\":[");
  for (size_t i = 0; i < threads_.size(); ++i) {
    if (i != 0) write(",\n");
    write(thread_text(threads_[i], i));
  }
  write("]}\n");
}

}  // namespace asof
