// FirefoxProfile: folded stacks as a profile that https://profiler.firefox.com opens from a file, without
// sending it anywhere. Its processed format, version 48 (docs-developer/CHANGELOG-formats.md and
// src/types/profile.js of the Firefox Profiler; newer ones are made from it when it is opened): columns of
// functions, frames and stacks, and samples with a weight. Here a sample is one stack, and its weight all
// that it cost; the samples are next to each other on the axis of time, which has no other meaning.
#pragma once
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/profile/folded_stacks.h"

namespace asof {

class FirefoxProfile {
 public:
  // `names` are those of the stacks. `split`: the outermost frame is a track's name, and a thread of the
  // profile.
  FirefoxProfile(const std::vector<std::string>& names, StackWeight weight, bool split)
      : names_(names), weight_(weight), split_(split) {}

  void add(std::span<const uint32_t> stack, const Cost& own);
  void write(const std::function<void(std::string_view)>& write) const;

 private:
  static constexpr int64_t kNone = -1;
  struct Stack {
    int64_t prefix = kNone;
    uint32_t function = 0;
  };
  struct Sample {
    uint32_t stack = 0;
    uint64_t weight = 0;
  };
  struct Thread {
    std::string name;
    std::vector<uint32_t> functions;  // names, in the order they are met
    std::map<uint32_t, uint32_t> function_ids;
    std::vector<Stack> stacks;
    std::map<std::pair<int64_t, uint32_t>, uint32_t> stack_ids;
    std::vector<Sample> samples;
  };
  std::string thread_text(const Thread& t, size_t index) const;

  const std::vector<std::string>& names_;
  StackWeight weight_;
  bool split_;
  std::vector<Thread> threads_;
};

}  // namespace asof
