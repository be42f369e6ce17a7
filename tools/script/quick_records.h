// QuickRecords: perf's --itrace letter q. The addresses that an Intel PT trace itself has, of TIP, FUP and PSB+, as
// perf's events; no code is walked, so what lies between them is not known (tools/perf/Documentation/perf-intel-pt.txt).
// With qq only those of PSB+.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "arch/packets.h"
#include "decoder/model/capture.h"
#include "tools/output/merge.h"
#include "tools/script/script_options.h"
#include "tools/script/script_record.h"

namespace asof {

class QuickRecords {
 public:
  // `packets` are those of the stream, of Intel PT.
  QuickRecords(const Stream& stream, std::unique_ptr<PacketReader> packets, const ScriptItrace& itrace);

  // The next packets, about `count` of them; false: there are none.
  bool read(uint64_t count, TimedText& out);
  // No record to come is before it.
  Time now() const { return packet_.time; }
  uint64_t packets() const { return packets_; }
  // Places without a packet, and with trace missing.
  uint64_t bad() const { return bad_; }
  uint64_t losses() const { return losses_; }

 private:
  enum class Use : uint8_t {
    kNone,
    kPsb,
    kPsbend,
    kTip,
    kBegin,
    kEnd,
    kFup,
    kOverflow,
    kCbr,
    kEvent,  // a record of its own
    kTnt,
    kMode,
    kOther,  // that may be followed by a FUP of its own
  };
  struct Role {
    Use use = Use::kNone;
    ScriptRecord::Kind kind = ScriptRecord::Kind::kBranch;  // of events
  };
  static Role role_of(std::string_view name);

  void packet(Role role);
  void line();  // that is no packet
  void in_group(Role role);
  void end_group();
  void fup();
  void event(ScriptRecord::Kind kind);
  void cbr(uint64_t ratio);
  uint64_t number(std::string_view field) const;
  Addr ip() const { return number("ip"); }
  Space space_of(Addr ip) const;  // now
  ScriptRecord record(ScriptRecord::Kind kind, Addr ip) const;
  void put(const ScriptRecord& r);
  void instruction(Addr ip, Addr to = 0);
  void branch(Addr from, Addr to, uint32_t flags);
  void error(uint64_t number);
  void bind(Addr ip);
  // An address that nothing followed.
  void flush_from();
  void forget();

  const Stream* stream_;
  std::unique_ptr<PacketReader> reader_;
  ScriptItrace itrace_;
  std::vector<Role> roles_;  // by type
  TracePacket packet_;
  PacketFields fields_;
  TimedText* out_ = nullptr;
  std::vector<ScriptRecord> waiting_;  // for a FUP, with their place
  bool bound_ = false;                 // the next FUP belongs to what was before it
  std::optional<Addr> from_;           // where the flow was interrupted
  std::optional<Addr> group_ip_;       // in a PSB+
  std::optional<uint64_t> group_cbr_;
  uint64_t group_offset_ = 0, cbr_ = 0;
  uint64_t packets_ = 0, bad_ = 0, losses_ = 0;
  bool in_group_ = false, on_ = false, overflow_ = false, in_transaction_ = false, abort_ = false;
};

}  // namespace asof
