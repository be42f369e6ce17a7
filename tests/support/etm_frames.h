// EtmFrames: the CoreSight trace formatter (Arm IHI 0029, "Formatter"): bytes of several trace sources in
// frames of 16 bytes, with the IDs of the sources between them.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace asof::test {

class EtmFrames {
 public:
  static constexpr uint8_t kNull = 0;  // ID of padding

  // `sync`: full synchronisation packets between frames, as a TPIU writes them; every `sync_every` frames.
  explicit EtmFrames(bool sync = false, unsigned sync_every = 8) : sync_(sync), sync_every_(sync_every) {}

  void write(uint8_t id, std::span<const uint8_t> bytes);
  // Fills up the frame with padding.
  void flush();
  // The ID is written again before the next byte, so a buffer from which decoding starts states whose bytes
  // it holds.
  void forget_id() { known_ = false; }
  const std::vector<uint8_t>& bytes() const { return out_; }

 private:
  void change_to(uint8_t id);
  void put(uint8_t byte);
  void finish_frame();

  bool sync_;
  unsigned sync_every_;
  std::vector<uint8_t> out_;
  std::array<uint8_t, 15> slot_{};
  std::array<bool, 15> is_id_{};
  uint8_t late_ = 0;  // bit i: the ID in slot 2i takes effect after the next byte
  size_t used_ = 0;
  uint8_t id_ = kNull;
  bool known_ = false;
  unsigned frames_ = 0;
};

}  // namespace asof::test
