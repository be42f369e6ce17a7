// The flow beside Intel PT: a conditional branch takes a TNT bit, a compressed return likewise, an indirect branch or a
// far transfer a TIP.
#include <utility>

#include "tools/packets/flow_beside.h"

namespace asof {
namespace {

// A FUP behind its packet may say where it happened.
bool may_have_fup(EventKind k) {
  return k == EventKind::kPtwrite || k == EventKind::kExstop || k == EventKind::kMwait ||
         k == EventKind::kBep || k == EventKind::kCfe || k == EventKind::kTsxBegin ||
         k == EventKind::kTsxCommit;
}

// The flow may be elsewhere after it than the branches say.
bool moves_flow(EventKind k) {
  return k == EventKind::kTraceStart || k == EventKind::kTraceStop || k == EventKind::kAsync ||
         k == EventKind::kOverflow || k == EventKind::kTsxAbort;
}

class PtFlow final : public FlowBeside {
 public:
  using FlowBeside::FlowBeside;

 private:
  Use use_of(std::string_view name) const override {
    if (is_one_of(name, {"TNT.8", "TNT.64"})) return Use::kBits;
    if (name == "TIP") return Use::kTarget;
    return is_one_of(name, {"PSB", "FUP", "TIP.PGE", "TIP.PGD", "OVF"}) ? Use::kOwn : Use::kOther;
  }
  void start(size_t) override {
    target_ = 0;
    waits_ = after_sync_ = false;
  }
  void at_event(const Event& e) override;
  bool resumes(Addr ip) override {
    target_ = 0;
    waits_ = false;
    return release_at("ip", ip, {"TIP", "TIP.PGE", "FUP"});
  }
  void at_step(const Step& s) override;
  void pass_group();
  void use(const Step& s);

  Addr target_ = 0;          // of the TIP in use, until the block at it comes
  bool waits_ = false;       // a branch found no packet for it: an event is to say why
  bool after_sync_ = false;  // no block has come yet
};

// The rest of a PSB+: its FUP says only where the flow is.
void PtFlow::pass_group() {
  while (read()) {
    const std::string_view name = held_name();
    if (is_one_of(name, {"TNT.8", "TNT.64", "TIP", "TIP.PGE", "TIP.PGD", "OVF", "PSB", "BAD"})) return;
    release();
    if (name == "PSBEND") return;
  }
}

void PtFlow::at_event(const Event& e) {
  const bool sync = e.kind == EventKind::kPsb;
  if (!sync && !moves_flow(e.kind) && !may_have_fup(e.kind)) return;
  if (e.offset >= passed() && pass(e.offset)) lose();
  waits_ = false;
  target_ = 0;
  const bool here = holds() && held_offset() == e.offset;
  if (here) {
    release();
    drop_bits();
  }
  if (sync) {
    if (!here) return lose();
    pass_group();
    follow();
    after_sync_ = true;
    return;
  }
  if (here && (may_have_fup(e.kind) || e.kind == EventKind::kOverflow || e.kind == EventKind::kTsxAbort))
    release_if({"FUP"});
  // The other half of an interrupt.
  if (e.kind == EventKind::kAsync || e.kind == EventKind::kTsxAbort) release_if({"TIP", "TIP.PGD"});
}

// Which packet the branch at the end of a block that ran to its end used.
void PtFlow::use(const Step& s) {
  const BranchKind kind = s.block->kind;
  const bool ret = kind == BranchKind::kRet;
  const bool bit = kind == BranchKind::kCond || ret;
  const bool tip = ret || kind == BranchKind::kJumpInd || kind == BranchKind::kCallInd ||
                   kind == BranchKind::kFarCall || kind == BranchKind::kFarRet ||
                   kind == BranchKind::kFarJump;
  if (!bit && !tip) return;
  if (!has_bits() && hold()) {
    if (held_use() == Use::kTarget && tip) {
      target_ = held_number("ip");
      return release();
    }
    if (held_use() == Use::kTarget || (held_use() == Use::kBits && !bit)) return lose();
    if (held_use() == Use::kBits) release();
  }
  bool taken = false;
  if (!has_bits()) {
    waits_ = true;  // an event says what happened
  } else if (!bit || !take_bit(taken) || taken != (ret || (s.flags & Step::kTaken) != 0)) {
    lose();
  }
}

void PtFlow::at_step(const Step& s) {
  // Tracing may be switched on with a sync point, at the address that it has.
  if (std::exchange(after_sync_, false)) release_at("ip", s.block->ip, {"TIP.PGE"});
  if (waits_ || (target_ != 0 && target_ != s.block->ip)) lose();
  target_ = 0;
  waits_ = false;
  print(s);
  if (following() && s.count == s.block->count) use(s);
}

}  // namespace

std::unique_ptr<FlowBeside> make_pt_flow(const Capture& capture, const Arch& arch, Lister& lister) {
  return std::make_unique<PtFlow>(capture, arch, lister);
}

}  // namespace asof
