// ReferenceSums: what libipt finds in a segment, as count and hash of all instruction addresses, by its block
// decoder. That is several times as fast as its instruction decoder, but takes text from files only, which do
// not change. So this answers only for segments that need no other text, and that libipt decodes without an
// error; the others are for the reference engine (reference.h), which finds the same in those answered here.
#pragma once
#include <memory>
#include <optional>
#include <span>

#include "arch/arch.h"
#include "arch/x86/config.h"

namespace asof::x86 {

class ReferenceSums {
 public:
  // All that is given must outlive it.
  ReferenceSums(const Config& config, std::span<const Stream> streams, const TextStore& text);
  ~ReferenceSums();
  // Without branches; nullopt: no answer.
  std::optional<RunSum> sum(const Segment& segment);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace asof::x86
