#include "arch/arm64/elements_plain.h"

namespace asof::arm64 {

// Puts `most` elements into the list, or those up to the next packet that is not plain.
void ElementParser::parse_plain(size_t most) {
  const uint8_t* const begin = bytes_.data();
  const uint8_t* const end = begin + bytes_.size();
  const uint8_t* p = begin + at_;
  while (most > 0 && end - p >= kLongestPlain) {
    Element e;
    e.offset = static_cast<uint32_t>(p - begin);
    e.time = static_cast<uint32_t>(times_base_ + times_.size());
    const uint8_t h = *p;
    if (h >= 0xc0) {
      uint32_t count = 0;
      p = plain_atoms(p, end, e.value, count);
      if (count == 0) break;
      e.kind = El::kAtoms;
      e.count = static_cast<uint8_t>(count);
    } else if (h == 0x02 || h == 0x03) {
      p = plain_timestamp(p, timestamp_);
      if (timestamp_ == 0) continue;  // the counter does not run
      e.kind = El::kTime;
      e.value = timestamp_;
      times_.push_back(timestamp_);
    } else if ((h & 0xf0) == 0x90) {
      Register r;
      const uint8_t* const next = plain_address(p, r);
      if (next == p) break;
      remember(r);
      p = next;
      e.kind = El::kAddress;
      e.value = r.address;
      e.isa = r.isa;
      e.flags = e.offset == start_offset_ ? Element::kStart : uint8_t{0};
    } else if (h >= 0x0c && h <= 0x1f && !cycles_) {
      p = plain_cycles(p);
      continue;
    } else {
      break;
    }
    list_.push_back(e);
    --most;
  }
  at_ = static_cast<size_t>(p - begin);
}

void ElementParser::keep_atoms(uint32_t offset) {
  Element e;
  e.kind = El::kAtoms;
  e.offset = offset;
  e.time = static_cast<uint32_t>(times_base_ + times_.size());
  const uint32_t atoms = atoms_of(bytes_[offset]);
  e.value = atoms & 0xffffff;
  e.count = static_cast<uint8_t>(atoms >> 24);
  list_.push_back(e);
  ready_ = 1;
  --base_;
}

}  // namespace asof::arm64
