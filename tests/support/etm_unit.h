// EtmUnit: the trace unit of a simulated CPU. Given what executes, it decides which packets result, as IHI
// 0064 describes: atoms for branches and ISB, addresses where a decoder could not know them, exceptions with
// their return address, a return stack, timestamps after P0 elements, synchronisation, speculation with
// commits and cancels.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "tests/support/etm_writer.h"
#include "tests/support/sim_random.h"
#include "textstore/address.h"

namespace asof::test {

struct EtmUnitConfig {
  bool return_stack = false;
  unsigned return_depth = 8;
  bool cycle_counts = false;
  // P0 elements from one timestamp to the next; 0: no timestamps.
  unsigned timestamp_every = 1;
  bool zero_timestamps = false;   // the generator does not run
  uint64_t timestamp_offset = 0;  // of the counter from perf's clock
  bool timestamp_at_sync = true;
  unsigned sync_bytes = 400;     // bytes of trace from one A-Sync to the next
  unsigned spec_depth = 0;       // TRCIDR8; 0: elements are committed immediately
  bool merge_exceptions = true;  // one packet for a branch target that is interrupted immediately
};

class EtmUnit {
 public:
  EtmUnit(const EtmUnitConfig& config, uint64_t seed);

  bool on() const { return on_; }
  uint64_t sync_offset() const { return sync_at_; }  // of the last A-Sync
  // Tracing begins (again) at `ip`: synchronisation if there was none, trace on, address and context.
  void start(Addr ip, uint64_t time, EtmContext context = {});
  void stop();      // filtered out from here on: nothing is written
  void overflow();  // likewise; the next start() writes an overflow packet

  void direct(Addr next, bool taken, bool link, Addr return_address, uint64_t time);
  void indirect(Addr target, bool link, bool returns, Addr return_address, uint64_t time);
  void isb(Addr next, uint64_t time);
  // `from`: the instruction that would run now, or the one after a call. `context`: only when it changes.
  void exception(uint16_t type, Addr from, Addr vector, uint64_t time,
                 std::optional<EtmContext> context = {});
  void exception_return(Addr target, uint64_t time, std::optional<EtmContext> context = {});
  // ERET to code that is filtered out: the atom, and no address.
  void leave();
  void event(unsigned bits);

  // Commits and writes everything; nothing may follow.
  void finish();
  const EtmWriter& writer() const { return writer_; }
  EtmWriter& writer() { return writer_; }

 private:
  struct Pending {
    Addr address = 0;
    std::optional<EtmContext> context;
    bool after_eret = false;
  };
  void sync(uint64_t time);
  void atom(bool e);
  void wrong_path(bool e);
  void element();  // one more P0 element
  void commit_all();
  void after_element(Addr next, uint64_t time);
  void write_pending();
  void timestamp(uint64_t time);

  EtmUnitConfig config_;
  SimRandom random_;
  EtmWriter writer_;
  EtmContext context_;
  std::vector<Addr> stack_;
  std::optional<Pending> pending_;
  bool on_ = false, overflowed_ = false, synced_ = false;
  unsigned since_timestamp_ = 0;
  unsigned uncommitted_ = 0;
  uint64_t last_sync_ = 0, sync_at_ = 0;
  uint64_t last_count_ = 0;
};

}  // namespace asof::test
