// Where bytes came from. Every version of text has one, so that tools can say why these bytes are shown.
#pragma once
#include <cstdint>
#include <string>

namespace asof {

enum class OriginKind : uint8_t {
  kUnknown,
  kKcore,     // kcore copied at the start of the recording
  kKcoreEnd,  // second kcore, copied at its end
  kWatcher,   // bytes copied when a KSYMBOL appeared
  kFile,      // ELF file, identity in build_id
  kVdso,
  kBpfImage,  // jited_prog_insns of BPF_PROG_INFO; id = program id
  kRaw,       // text piece of a raw bundle
  kJit,       // jitdump
  kPoke,      // TEXT_POKE; id = index in TextStore::pokes()
};

struct Origin {
  OriginKind kind = OriginKind::kUnknown;
  std::string name;      // file path, program name, ...
  uint64_t id = 0;       // meaning depends on kind
  std::string build_id;  // lower-case hex, empty when there is none
};

// Index into TextStore's origins, or, with the top bit set, index into its pokes: what the poke wrote, or, with the next
// bit set, too, what it found there, which only its record says.
using OriginRef = uint32_t;
inline constexpr OriginRef kNoOrigin = 0;
inline constexpr OriginRef kPokeBit = 0x80000000U, kBeforeBit = 0x40000000U;
constexpr bool is_poke(OriginRef r) { return (r & kPokeBit) != 0; }
constexpr bool is_before_poke(OriginRef r) { return is_poke(r) && (r & kBeforeBit) != 0; }
constexpr uint32_t poke_index(OriginRef r) { return r & ~(kPokeBit | kBeforeBit); }

}  // namespace asof
