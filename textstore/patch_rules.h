// PatchRules: what the store must know of a machine's instructions at patch sites. It has no
// opcodes of its own; arch/ supplies the rules of each machine (Builder::set_patch_rules()).
#pragma once
#include <cstdint>
#include <optional>
#include <span>

namespace asof {

struct PatchRules {
  enum class Kind : uint8_t { kOther, kNoOp, kJump };
  // Of the whole bytes of a site. Null: kinds are not known, so after a loss of records any site may have
  // held anything.
  Kind (*kind)(std::span<const uint8_t>) = nullptr;
  // The byte in place of an instruction's first one while it is patched; none: it is replaced at once.
  std::optional<uint8_t> breakpoint{};
};

}  // namespace asof
