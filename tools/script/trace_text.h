// TraceText: what a tracepoint's sample says, in the words of its print format. libtraceevent does that, where it is
// installed (Debian: libtraceevent1), in a process of its own: it reads the formats and the bytes as they are in the
// recording, which may be damaged, and it may crash or not come to an end.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "arch/child.h"
#include "decoder/model/capture.h"

namespace asof {

class TraceText {
 public:
  explicit TraceText(const Capture& capture) : capture_(capture) {}

  // Of a sample's raw bytes; empty: it cannot be said.
  std::string text(int32_t cpu, std::span<const uint8_t> raw);
  // Why some could not.
  const std::optional<Error>& failure() const { return failure_; }

 private:
  bool start();
  std::optional<std::string> answer(int32_t cpu, std::span<const uint8_t> raw);
  void fault(std::string reason, std::string hint);

  const Capture& capture_;
  std::optional<Error> failure_;
  void* library_ = nullptr;
  std::unique_ptr<Child> child_;
  unsigned deaths_ = 0;
  bool given_up_ = false;
};

}  // namespace asof
