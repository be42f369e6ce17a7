// TextFacts: facts for a Builder written as in the test matrix (hex bytes, times), and the answers of a store
// as text.
#pragma once
#include <algorithm>
#include <deque>
#include <set>
#include <string>
#include <vector>

#include "arch/x86/patch_rules.h"
#include "textstore/builder.h"

namespace asof::test {

inline std::vector<uint8_t> from_hex(const std::string& text) {
  std::vector<uint8_t> bytes;
  std::string digits;
  for (char c : text) {
    if (c != ' ') digits += c;
  }
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(std::stoul(digits.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

inline std::string to_hex(std::span<const uint8_t> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (uint8_t b : bytes) {
    if (!text.empty()) text += ' ';
    text += kDigits[b >> 4];
    text += kDigits[b & 15];
  }
  return text;
}

inline constexpr Addr kText = 0xffffffff81000000;
inline const std::string kNop5 = "0f 1f 44 00 00";
inline const std::string kJmp = "e9 01 02 03 04";
inline const std::string kCall = "e8 11 12 13 14";

struct LayerSpec {
  Time from = kTimeMin;
  Time until = kTimeMax;
  bool soft = false;
  Time observed = kTimeMin;
  int rank = kRankSnapshot;
  Space space = kKernelSpace;
  bool replaceable = false;
};

class TextFacts {
 public:
  // Empty `hex`: claimed and unknown, `size` bytes.
  OriginRef layer(Addr a, const std::string& hex, const LayerSpec& spec = {}, uint64_t size = 0) {
    return layer_bytes(a, from_hex(hex), spec, size);
  }
  OriginRef layer_bytes(Addr a, std::vector<uint8_t> bytes, const LayerSpec& spec = {}, uint64_t size = 0) {
    owned_.push_back(std::move(bytes));
    const OriginRef origin = builder.add_origin({OriginKind::kFile, "layer", owned_.size(), {}});
    const uint64_t length = owned_.back().empty() ? size : owned_.back().size();
    builder.add_layer({spec.space, range_of(a, length), owned_.back(), spec.from, spec.until, spec.soft,
                       spec.observed, spec.rank, origin, spec.replaceable});
    return origin;
  }
  void poke(Time t, Addr a, const std::string& old_hex, const std::string& new_hex, uint32_t source = 0) {
    poke_at(next_offset_++, t, a, old_hex, new_hex, source);
  }
  void poke_at(uint64_t file_offset, Time t, Addr a, const std::string& old_hex, const std::string& new_hex,
               uint32_t source = 0) {
    owned_.push_back(from_hex(old_hex));
    owned_.push_back(from_hex(new_hex));
    builder.add_poke({a, t, owned_[owned_.size() - 2], owned_.back(), source, file_offset});
  }
  // A copy of memory that `origin` names had these bytes.
  void observed(Time t, Addr a, const std::string& hex, OriginRef origin) {
    owned_.push_back(from_hex(hex));
    builder.add_poke({a, t, owned_.back(), owned_.back(), 0, 0, origin});
  }
  void lost(Time after, Time until, uint32_t source = 0) { builder.add_lost({source, after, until, 1}); }
  TextStore build() {
    if (all_rings) builder.all_rings_recorded();
    if (x86_rules) builder.set_patch_rules(x86::kPatchRules);
    return std::move(builder).build();
  }

  Builder builder;
  bool all_rings = true;
  bool x86_rules = true;  // false: no machine's rules

 private:
  std::deque<std::vector<uint8_t>> owned_;
  uint64_t next_offset_ = 1000;
};

// Texts that may be at [a, a+size) within the bounds, sorted, "?" for unknown. The range must be in one
// cell.
inline std::vector<std::string> candidates(const TextStore& store, Addr a, size_t size, TimeBounds when,
                                           Space space = kKernelSpace) {
  const Cell cell = store.cell(space, a);
  if (!cell.range.contains(range_of(a, size))) return {"not one cell"};
  std::set<std::string> texts;
  for (const Version& v : cell.versions) {
    if (!v.possible_in(when)) continue;
    texts.insert(v.bytes == nullptr ? "?" : to_hex({v.bytes + (a - cell.range.begin), size}));
  }
  return {texts.begin(), texts.end()};
}

inline std::vector<std::string> at(const TextStore& store, Addr a, size_t size, Time t,
                                   Space space = kKernelSpace) {
  return candidates(store, a, size, {t, t}, space);
}

inline std::vector<TextNotice> notices_of(const TextStore& store, TextNotice::Kind kind) {
  std::vector<TextNotice> found;
  for (const TextNotice& n : store.notices()) {
    if (n.kind == kind) found.push_back(n);
  }
  return found;
}

using Texts = std::vector<std::string>;

}  // namespace asof::test
