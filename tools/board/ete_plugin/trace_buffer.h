// The Trace Buffer Extension of one CPU: DDI 0487, chapter D6 "The Trace Buffer Extension". Takes the trace unit's
// bytes to memory through virtual addresses of the owning translation regime (EL1).
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "tools/board/ete_plugin/registers.h"

namespace asof::ete {

class TraceBuffer {
 public:
  // Memory of a page of the guest by virtual address; nullptr if it is not mapped. Called when the buffer is enabled.
  using Translate = std::function<uint8_t*(uint64_t page)>;

  TraceBuffer(Registers& registers, Translate translate, std::function<void()> interrupt)
      : registers_(registers), translate_(std::move(translate)), interrupt_(std::move(interrupt)) {}

  // Enabled and collection not stopped (TRBLIMITR_EL1.E, TRBSR_EL1.S).
  bool running() const { return running_; }
  uint64_t accepted() const { return accepted_; }  // bytes since power-on
  bool write(std::span<const uint8_t> bytes);      // false: not all were accepted
  // After a write to TRBLIMITR_EL1 or TRBSR_EL1. True: it runs now and did not before.
  bool update();

 private:
  static constexpr uint64_t kPage = 4096;
  void stop(uint64_t status);
  void wrap();
  bool map();

  Registers& registers_;
  Translate translate_;
  std::function<void()> interrupt_;
  std::vector<uint8_t*> pages_;  // of base .. limit, as when it was enabled
  uint64_t base_ = 0, limit_ = 0, pointer_ = 0, accepted_ = 0;
  bool running_ = false;
};

}  // namespace asof::ete
