#include "tests/support/etm_frames.h"

namespace asof::test {

void EtmFrames::write(uint8_t id, std::span<const uint8_t> bytes) {
  for (const uint8_t b : bytes) {
    if (!known_ || id != id_) change_to(id);
    put(b);
  }
}

// IDs can only be in even slots. In an odd slot, the ID takes the even slot before it, whose byte moves after
// the ID; the ID is then marked to take effect one byte later.
void EtmFrames::change_to(uint8_t id) {
  const auto mark = static_cast<uint8_t>(id << 1 | 1);
  if (used_ % 2 == 0) {
    is_id_[used_] = true;
    slot_[used_] = mark;
    id_ = id;
    known_ = true;
    if (++used_ == slot_.size()) finish_frame();
    return;
  }
  const size_t before = used_ - 1;
  if (is_id_[before]) {
    slot_[before] = mark;  // replaces an ID that no byte followed
  } else {
    slot_[used_] = slot_[before];
    slot_[before] = mark;
    is_id_[before] = true;
    late_ |= static_cast<uint8_t>(1U << (before / 2));
    ++used_;
  }
  id_ = id;
  known_ = true;
}

void EtmFrames::put(uint8_t byte) {
  is_id_[used_] = false;
  slot_[used_] = byte;
  if (++used_ == slot_.size()) finish_frame();
}

// The last byte of a frame holds what the flag of an ID displaced: bit 0 of data, or whether the ID takes
// effect late.
void EtmFrames::finish_frame() {
  if (sync_ && frames_ % sync_every_ == 0) {
    out_.insert(out_.end(), {0xff, 0xff, 0xff, 0x7f});
  }
  uint8_t last = late_;
  for (size_t i = 0; i < slot_.size(); ++i) {
    uint8_t b = slot_[i];
    if (i % 2 == 0 && !is_id_[i]) {
      last |= static_cast<uint8_t>((b & 1U) << (i / 2));
      b &= 0xfe;
    }
    out_.push_back(b);
  }
  out_.push_back(last);
  ++frames_;
  used_ = 0;
  late_ = 0;
  is_id_ = {};
}

void EtmFrames::flush() {
  if (used_ == 0) return;
  change_to(kNull);
  while (used_ != 0) put(0);
}

}  // namespace asof::test
