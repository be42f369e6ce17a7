// The flow beside ETMv4 and ETE: every waypoint takes an atom, or a source address packet that is of it; an address
// packet follows where an indirect branch or an exception went.
#include <utility>

#include "arch/arm64/insn.h"
#include "tools/packets/flow_beside.h"

namespace asof {
namespace {

bool is_indirect(BranchKind k) {
  return k == BranchKind::kRet || k == BranchKind::kJumpInd || k == BranchKind::kCallInd ||
         k == BranchKind::kFarRet;
}

class EtmFlow final : public FlowBeside {
 public:
  EtmFlow(const Capture& capture, const Arch& arch, Lister& lister)
      : FlowBeside(capture, arch, lister), config_(capture.arm64) {}

 private:
  Use use_of(std::string_view name) const override {
    if (name.starts_with("Atom.")) return Use::kBits;
    if (name.starts_with("Source-Address.")) return Use::kTarget;
    return name.starts_with("Address.") || is_one_of(name, {"Exception", "Q", "A-Sync", "Overflow"})
               ? Use::kOwn
               : Use::kOther;
  }
  void start(size_t index) override {
    constexpr uint32_t kBranchBroadcast = 8;  // TRCCONFIGR.BB: an address after every branch that is taken
    const arm64::Source& source = config_.sources.at(index);
    wfx_ = (source.idr2 >> 31) != 0;
    broadcast_ = (source.configr & kBranchBroadcast) != 0;
    waits_ = address_ = false;
  }
  void at_event(const Event& e) override;
  bool resumes(Addr ip) override {
    waits_ = address_ = false;
    return take_address(ip);
  }
  void at_step(const Step& s) override;
  void use(const Step& s);
  bool use_source(const Block& b, bool taken);
  bool is_waypoint(const Block& b) const;
  bool take_address(Addr ip) {
    return hold() && held_name().starts_with("Address.") && held_number("address") == ip &&
           release_if({held_name()});
  }
  void pass_sync(Addr ip);

  const arm64::Config& config_;
  bool wfx_ = false, broadcast_ = false;
  bool waits_ = false;    // a waypoint found no atom: an event is to say why
  bool address_ = false;  // an address packet may say where the flow went
};

// Up to the address of a sync point, which says where the flow is.
void EtmFlow::pass_sync(Addr ip) {
  while (hold() && held_name() == "A-Sync") release();
  address_ = ip == 0 || !take_address(ip);
}

void EtmFlow::at_event(const Event& e) {
  if (e.kind != EventKind::kPsb && e.kind != EventKind::kAsync && e.kind != EventKind::kTraceStart &&
      e.kind != EventKind::kOverflow)
    return;
  if (e.offset >= passed() && pass(e.offset)) lose();
  waits_ = false;
  switch (e.kind) {
    case EventKind::kPsb:
      follow();
      return pass_sync(e.ip);
    case EventKind::kAsync:
      // Its packet, the address it returns to, and where it went.
      if (release_if({"Exception"}) && hold() && held_name().starts_with("Address.")) release();
      address_ = true;
      return;
    case EventKind::kTraceStart:
      address_ = true;
      return;
    default:
      release_if({"Overflow"});
  }
}

bool EtmFlow::is_waypoint(const Block& b) const {
  const uint8_t last = b.lengths[b.count - 1];
  arm64::Insn insn;
  arm64::decode_insn({b.bytes + b.size - last, last}, b.end() - last, b.mode, wfx_, insn);
  return insn.waypoint != arm64::Waypoint::kNone && insn.waypoint != arm64::Waypoint::kTrap;
}

// A source address packet is of the branch at its address; branches on the way there were not taken.
bool EtmFlow::use_source(const Block& b, bool taken) {
  if (held_number("address") != b.end() - b.lengths[b.count - 1]) {
    if (taken) lose();
    return false;
  }
  release();
  if (!taken) lose();
  return true;
}

void EtmFlow::use(const Step& s) {
  const Block& b = *s.block;
  if (!is_waypoint(b)) return;
  const bool taken = b.kind != BranchKind::kCond || (s.flags & Step::kTaken) != 0;
  while (!has_bits() && hold()) {
    if (held_use() == Use::kTarget) {
      if (use_source(b, taken)) address_ = broadcast_ || is_indirect(b.kind);
      return;
    }
    // An address where the flow is says nothing new.
    const bool here = held_name().starts_with("Address.") && held_number("address") == b.ip;
    if (held_use() != Use::kBits && held_name() != "A-Sync" && !here) break;
    release();
  }
  bool atom = false;
  if (!take_bit(atom)) {
    waits_ = true;
    return;
  }
  if (atom != taken) return lose();
  address_ = broadcast_ || is_indirect(b.kind);
}

void EtmFlow::at_step(const Step& s) {
  if (waits_) lose();
  waits_ = false;
  if (std::exchange(address_, false) && !has_bits()) take_address(s.block->ip);
  print(s);
  if (following() && s.count == s.block->count) use(s);
}

}  // namespace

std::unique_ptr<FlowBeside> make_etm_flow(const Capture& capture, const Arch& arch, Lister& lister) {
  return std::make_unique<EtmFlow>(capture, arch, lister);
}

}  // namespace asof
