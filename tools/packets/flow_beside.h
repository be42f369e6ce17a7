// `asof packets --flow`: under each packet the blocks that ran because of it. The decoder does not say which packet a
// block comes from; packets and blocks are matched by what each branch needs. Events and gaps have offsets, packets have
// directions and addresses: where those disagree with the matching, it is given up to the next sync point, and that is
// counted.
#pragma once
#include <atomic>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "decoder/pipeline/pipeline.h"
#include "tools/packets/lister.h"

namespace asof {

class FlowBeside : public ChunkConsumer {
 public:
  FlowBeside(const Capture& capture, const Arch& arch, Lister& lister)
      : capture_(capture), arch_(arch), lister_(lister) {}

  void deliver(Chunk& chunk, const Stream& stream, Prepared*) final;
  // Called by all workers.
  bool stopped() const final { return stopped_; }
  // The rest of the last stream, and streams after it.
  void finish();
  // Places where packets and flow could not be matched.
  uint64_t unmatched() const { return unmatched_; }

 protected:
  // What the flow does with a packet. kBits: one branch takes one. kTarget: a branch goes to its address. kOwn: something
  // else says when it is used.
  enum class Use : uint8_t { kOther, kBits, kTarget, kOwn };
  using Names = std::initializer_list<std::string_view>;

  virtual Use use_of(std::string_view name) const = 0;
  virtual void start(size_t /*index*/) {}
  virtual void at_event(const Event& e) = 0;
  // After a gap: does the packet that is held say where the flow goes on?
  virtual bool resumes(Addr ip) = 0;
  virtual void at_step(const Step& s) = 0;

  // The next packet is held. False: there is none.
  bool read();
  // The next one that the flow uses is held; those before it are listed. False: there is none.
  bool hold();
  Use held_use() const { return uses_[held_.type]; }
  std::string_view held_name() const { return reader_->names()[held_.type]; }
  uint64_t held_offset() const { return held_.offset; }
  bool holds() const { return holds_; }
  uint64_t held_number(std::string_view field) const;
  // Lists what is held. Its bits are then those in use.
  void release();
  // Lists the next one that the flow uses, if it is one of these (and has this address). No bits are in use then.
  bool release_if(Names names);
  bool release_at(std::string_view field, Addr ip, Names names);
  // Lists all packets before `end`. True: the flow should have used one of them.
  bool pass(uint64_t end);
  uint64_t passed() const { return passed_; }  // all bytes before it are listed
  // A bit was taken, or not, as this says. False: there is none.
  bool take_bit(bool& one);
  bool has_bits() const { return used_ < bits_.size(); }
  void drop_bits() { used_ = bits_.size(); }
  void follow() { following_ = true; }
  bool following() const { return following_; }
  void lose();
  void print(const Step& s);

  static bool is_one_of(std::string_view name, Names names);

 private:
  void list_before(size_t index);
  void open(size_t index, const Stream& stream);
  void end_stream();
  void at_gap(const Gap& g);

  const Capture& capture_;
  const Arch& arch_;
  Lister& lister_;
  const Stream* stream_ = nullptr;
  std::unique_ptr<PacketReader> reader_;
  std::vector<Use> uses_;  // by type
  TracePacket held_;
  bool holds_ = false, ended_ = false;
  bool shown_ = false;      // the packet whose blocks come now is listed
  bool following_ = false;  // flow and packets are known to match
  uint64_t passed_ = 0;
  std::string bits_;  // of the packet in use, the oldest first
  size_t used_ = 0;   // of them
  size_t segment_ = 0;
  size_t next_stream_ = 0;
  uint64_t unmatched_ = 0;
  std::atomic<bool> stopped_ = false;
};

std::unique_ptr<FlowBeside> make_flow_beside(const Capture& capture, const Arch& arch, Lister& lister);
std::unique_ptr<FlowBeside> make_pt_flow(const Capture& capture, const Arch& arch, Lister& lister);
std::unique_ptr<FlowBeside> make_etm_flow(const Capture& capture, const Arch& arch, Lister& lister);

}  // namespace asof
