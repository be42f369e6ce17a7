// What a fuzz target is made of. `FUZZ_TARGET(name) { ... }` reads `bytes`, which may be anything; preset `fuzz` makes
// a libFuzzer program of each file with one, and the tests run each over its corpus, corpus/<name>.tar.zst.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace asof::fuzz {

using Bytes = std::span<const uint8_t>;

struct Target {
  const char* name;
  void (*run)(Bytes bytes);
};
std::vector<Target>& targets();

struct Registered {
  Registered(const char* name, void (*run)(Bytes)) { targets().push_back({name, run}); }
};

// Choices and numbers off the front of the input; 0 when there is nothing left.
class Input {
 public:
  explicit Input(Bytes bytes) : bytes_(bytes) {}
  uint8_t byte() {
    if (bytes_.empty()) return 0;
    const uint8_t b = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return b;
  }
  uint64_t number(unsigned size) {
    uint64_t n = 0;
    for (unsigned i = 0; i < size; ++i) n |= static_cast<uint64_t>(byte()) << (8 * i);
    return n;
  }
  Bytes rest() const { return bytes_; }

 private:
  Bytes bytes_;
};

// The path of a file in memory with these bytes, until the next call.
std::string as_file(Bytes bytes);

// Several files as one input: "\n=== NAME\n" before the bytes of each, so that a mutation of one leaves the others as
// they are. Names with anything but letters, digits and "._-/", or with "..", are passed over; there are at most 64.
std::map<std::string, Bytes> split_files(Bytes bytes);
// A plan (core.asof) is in a folder of its own, plan/, as it was beside the trace.
void move_plan(std::map<std::string, Bytes>& files);
// With the folders above it; not where its name is a folder.
void write_file(const std::filesystem::path& path, Bytes bytes);
// They are below the returned folder until the next call.
std::string as_folder(const std::map<std::string, Bytes>& files);

[[noreturn]] void fail(const char* what, const char* file, int line);

}  // namespace asof::fuzz

#define FUZZ_TARGET(name)                                                    \
  static void fuzz_##name(asof::fuzz::Bytes bytes);                          \
  static const asof::fuzz::Registered registered_##name{#name, fuzz_##name}; \
  static void fuzz_##name(asof::fuzz::Bytes bytes)

// Where it does not hold, the input is a finding.
#define FUZZ_CHECK(condition) ((condition) ? void() : asof::fuzz::fail(#condition, __FILE__, __LINE__))
