// `asof packets --flow`: under each packet of Intel PT the blocks that ran because of it. The decoder does not say which
// packet a block comes from; packets and blocks are matched by what each branch needs: a conditional branch a TNT bit,
// a compressed return likewise, an indirect branch or a far transfer a TIP. Events and gaps have offsets, and TIPs
// addresses: where those disagree with the matching, it is given up to the next sync point, and that is counted.
#pragma once
#include <atomic>
#include <initializer_list>
#include <memory>

#include "decoder/pipeline/pipeline.h"
#include "tools/packets/lister.h"

namespace asof {

class FlowBeside final : public ChunkConsumer {
 public:
  FlowBeside(const Capture& capture, const Arch& arch, Lister& lister)
      : capture_(capture), arch_(arch), lister_(lister) {}

  void deliver(Chunk& chunk, const Stream& stream, Prepared*) override;
  // Called by all workers.
  bool stopped() const override { return stopped_; }
  // The rest of the last stream, and streams after it.
  void finish();
  // Places where packets and flow could not be matched.
  uint64_t unmatched() const { return unmatched_; }

 private:
  enum class Use : uint8_t { kOther, kTnt, kTip, kSync, kOwn };  // kOwn: an event says when it is used

  void list_before(size_t index);
  void open(size_t index, const Stream& stream);
  void end_stream();
  // The next packet is held. False: there is none.
  bool read();
  // The next one that the flow uses is held; those before it are listed. False: there is none.
  bool hold();
  // Lists what is held.
  void release();
  // Lists the next one that the flow uses, if it is one of these.
  bool release_if(std::initializer_list<std::string_view> names);
  bool release_at(Addr ip, std::initializer_list<std::string_view> names);
  // Lists all packets before `end`. True: the flow should have used one of them.
  bool pass(uint64_t end);
  void pass_group();
  void at_event(const Event& e);
  void at_gap(const Gap& g);
  void at_step(const Step& s);
  void use(BranchKind kind);
  void lose();
  Use use_of(const TracePacket& k) const;

  const Capture& capture_;
  const Arch& arch_;
  Lister& lister_;
  const Stream* stream_ = nullptr;
  std::unique_ptr<PacketReader> reader_;
  std::vector<Use> uses_;  // by type
  TracePacket held_;
  bool holds_ = false, ended_ = false;
  bool waits_ = false;       // a branch found no packet for it: an event is to say why
  bool after_sync_ = false;  // no block has come yet
  bool shown_ = false;       // the packet whose blocks come now is listed
  bool following_ = false;   // flow and packets are known to match
  uint64_t passed_ = 0;      // all bytes before it are listed
  uint64_t bits_ = 0;        // of the TNT in use
  Addr target_ = 0;          // of the TIP in use, until the block at it comes
  size_t segment_ = 0;
  size_t next_stream_ = 0;
  uint64_t unmatched_ = 0;
  std::atomic<bool> stopped_ = false;
};

}  // namespace asof
