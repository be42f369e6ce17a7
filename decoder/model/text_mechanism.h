// Who changed text: the kernel's mechanism of a change, recognised by the bytes before and after it and by
// the symbols of the site and of the branch target. Patterns: docs/live-text.md, "Who changes text".
// Recognition is for people; nothing in decoding depends on it. Where bytes and symbols match nothing, the
// answer is kUnknown.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "decoder/model/capture.h"

namespace asof {

enum class Mechanism : uint8_t {
  kUnknown,
  kJumpLabel,   // static keys
  kFtrace,      // function tracer: call sites, its trampolines
  kKprobe,      // breakpoint, slot, optimised jump
  kStaticCall,  // static calls, inline or through their trampoline
  kBpf,         // programs, trampolines, dispatchers
  kModule,      // a module was loaded
  kOutOfLine,   // generated code of another kind
  kMapping,     // a process mapped a file
  kJit,         // a process wrote code of its own
};
inline constexpr size_t kMechanisms = 10;
std::string_view mechanism_name(Mechanism m);  // "jump_label"

struct Recognized {
  Mechanism mechanism = Mechanism::kUnknown;
  std::string_view action;  // "nop to jump", "armed": static text
};

// The target of a direct jump or call that fills `bytes` (x86: JMP, CALL, Jcc; arm64: B, BL).
std::optional<Addr> direct_target(std::span<const uint8_t> bytes, Addr at, bool arm64);

class Recognizer {
 public:
  explicit Recognizer(const Capture& capture);

  Recognized poke(const PokeRecord& poke) const;
  // Content that came or went without a TEXT_POKE record: `to` null: went; `from` null: came from nothing.
  Recognized content(Space space, Addr at, Time t, const Version* from, const Version* to) const;

 private:
  struct Site {
    std::string_view symbol;  // empty: none
    uint64_t offset = 0;
    bool module = false;
  };
  Site site_at(Space space, Addr at, Time t) const;
  Recognized whole(const PokeRecord& poke) const;
  Recognized x86(const PokeRecord& poke, const Site& site) const;
  Mechanism unchanged(std::span<const uint8_t> bytes, const Site& site) const;
  Recognized x86_branch(const PokeRecord& poke, const Site& site) const;
  Recognized arm64(const PokeRecord& poke) const;
  std::string_view target_name(std::span<const uint8_t> bytes, const PokeRecord& poke) const;

  const Capture& capture_;
  bool arm64_ = false;
};

}  // namespace asof
