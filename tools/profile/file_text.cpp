#include "tools/profile/file_text.h"

#include <algorithm>
#include <cstring>

#include "arch/arm64/insn.h"
#include "arch/x86/insn.h"

namespace asof {
namespace {

using K = BranchKind;

bool is_call(K kind) { return kind == K::kCall || kind == K::kCallInd; }

// 90 and 0F 1F, with prefixes 66 (arch/x86/kernel/alternative.c: x86_nops).
bool is_x86_nop(std::span<const uint8_t> insn) {
  size_t i = 0;
  while (i + 1 < insn.size() && insn[i] == 0x66) ++i;
  return insn[i] == 0x90 || (insn[i] == 0x0f && i + 1 < insn.size() && insn[i + 1] == 0x1f);
}

bool begins_with_nops(const Block& b, uint32_t size) {
  uint32_t at = 0;
  for (uint32_t i = 0; i < b.count && at < size; at += b.lengths[i++])
    if (!is_x86_nop({b.bytes + at, b.lengths[i]})) return false;
  return at == size;
}

bool holds(const std::vector<Addr>& all, Addr a) { return std::ranges::find(all, a) != all.end(); }

}  // namespace

std::optional<uint32_t> FileText::begin_in_file(const Block& b) {
  const auto known = known_.find(&b);
  if (known != known_.end()) return known->second;
  const auto begin = compare(b);
  known_.emplace(&b, begin);
  return begin;
}

const FileText::File& FileText::file_of(uint32_t number) {
  const auto known = files_.find(number);
  if (known != files_.end()) return known->second;
  File file;
  if (const auto elf = ElfImage::open(capture_.code.files[number].path)) {
    file.image = *elf;
    for (const ElfSymbol& s : file.image->symbols()) {
      file.functions.push_back(s.value);
      if (s.name.ends_with("return_thunk")) file.return_thunks.push_back(s.value);
      if (s.name.starts_with("__x86_indirect_")) file.indirect_thunks.push_back(s.value);
    }
    std::ranges::sort(file.functions);
  }
  return files_.emplace(number, std::move(file)).first->second;
}

std::optional<uint32_t> FileText::compare(const Block& b) {
  const auto place = places_.place_of(b.space, b.ip, b.from != kTimeMin ? b.from : b.until);
  if (!place) return {};
  const File& file = file_of(place->file);
  if (file.image == nullptr) return {};
  for (const ElfSegment& s : file.image->segments()) {
    if (place->address < s.address || place->address - s.address >= s.bytes.size()) continue;
    const uint64_t at = place->address - s.address;
    if (s.bytes.size() - at < b.size) return {};
    if (std::memcmp(&s.bytes[at], b.bytes, b.size) == 0) return 0;
    return walk(b, place->address, file, s);
  }
  return {};
}

std::optional<uint32_t> FileText::walk(const Block& b, Addr at, const File& file,
                                       const ElfSegment& segment) const {
  const auto next = std::ranges::upper_bound(file.functions, at);
  constexpr uint64_t kLargestFunction = 1U << 16U;
  if (next == file.functions.begin() || at - *std::prev(next) > kLargestFunction) return {};
  const Addr last = at + b.size - b.lengths[b.count - 1];
  std::optional<Addr> begin;
  for (Addr ip = std::max(*std::prev(next), segment.address); ip <= last;) {
    if (!begin && ip >= at) begin = ip;
    const Insn insn = decode(segment.bytes.subspan(ip - segment.address), ip, b.mode);
    if (insn.length == 0) return {};
    if (ip == last) {
      const auto skipped = static_cast<uint32_t>(*begin - at);
      return begins_with_nops(b, skipped) && ends_alike(b, at, file, insn) ? std::optional(skipped)
                                                                           : std::nullopt;
    }
    if (begin && is_branch(insn.kind) && !is_call(insn.kind)) return {};
    ip += insn.length;
  }
  return {};
}

// What the kernel makes of a branch of its file (arch/x86/kernel/alternative.c: apply_returns(), apply_retpolines();
// paravirt.c: CALL *pv_ops to a direct call; static_call.c).
bool FileText::ends_alike(const Block& b, Addr at, const File& file, const Insn& last) const {
  if (!is_branch(b.kind)) {
    const bool goes_on = !is_branch(last.kind) || is_call(last.kind);
    return goes_on && last.length == b.lengths[b.count - 1];
  }
  if (is_call(b.kind)) return is_call(last.kind);
  const Addr target = at + (b.target - b.ip);
  if (b.kind == last.kind && (b.target == 0 || target == last.target)) return true;
  if (last.kind != K::kJump) return false;
  if (b.kind == K::kJumpInd) return holds(file.indirect_thunks, last.target);
  const bool returns = b.kind == K::kRet || (b.kind == K::kJump && holds(file.return_thunks, target));
  return returns && holds(file.return_thunks, last.target);
}

FileText::Insn FileText::decode(std::span<const uint8_t> bytes, Addr ip, uint8_t mode) const {
  if (machine_ == CodeMachine::kArm64) {
    arm64::Insn insn;
    if (arm64::decode_insn(bytes, ip, mode, false, insn) != arm64::InsnStatus::kOk) return {};
    return {insn.length, insn.kind, insn.target};
  }
  x86::Insn insn;
  if (x86::decode_insn(bytes, ip, mode, insn) != x86::InsnStatus::kOk) return {};
  return {insn.length, insn.kind, insn.target};
}

}  // namespace asof
