#include "tests/support/etm_program.h"

#include <fmt/format.h>

namespace asof::test {

EtmProgram::EtmProgram(uint64_t seed, bool probes, Addr text)
    : random_(seed), with_probes_(probes), text_(text) {
  entries();
  for (int f = 0; f < kFunctions; ++f) function(f);
  words_ = assembler_.finish();
  for (const Named& n : named_)
    sites_.push_back({assembler_.address(n.at), assembler_.address(n.to), n.call});
}

std::vector<std::pair<Addr, std::string>> EtmProgram::functions() const {
  std::vector<std::pair<Addr, std::string>> out = {{vector(), "el1h_64_irq"},
                                                   {assembler_.address("tick"), "tick_handle"},
                                                   {assembler_.address("tracer"), "ftrace_caller"}};
  for (int f = 0; f < kFunctions; ++f) {
    out.emplace_back(assembler_.address(fmt::format("f{}", f)),
                     f == 0 ? "do_idle" : fmt::format("do_work_{}", f));
  }
  return out;
}

std::vector<uint8_t> EtmProgram::bytes() const {
  std::vector<uint8_t> out;
  for (const uint32_t w : words_) {
    const std::vector<uint8_t> b = a64::bytes_of(w);
    out.insert(out.end(), b.begin(), b.end());
  }
  return out;
}

void EtmProgram::install(EtmMachine& machine) const {
  machine.load(text_, words_);
  for (const Indirect& i : indirect_) {
    std::vector<Addr> to;
    for (const std::string& t : i.to) to.push_back(assembler_.address(t));
    machine.on_indirect(assembler_.address(i.at),
                        [to](EtmCpu& c) { return to[c.random().below(to.size())]; });
  }
  for (const auto& [at, rounds] : loops_) machine.loop_at(assembler_.address(at), rounds);
}

std::string EtmProgram::label(const char* what) { return fmt::format("{}{}", what, next_++); }

void EtmProgram::filler(uint64_t most) {
  for (uint64_t i = random_.below(most + 1); i != 0; --i)
    assembler_.straight(static_cast<unsigned>(random_.below(a64::kStraightKinds)));
}

void EtmProgram::entries() {
  assembler_.label("vector").straight(1).bl("tick").straight(2);
  if (random_.chance(50)) assembler_.word(a64::kIsb);
  assembler_.word(a64::kEret);
  assembler_.label("tick").straight(3).cbz(2, "tick.l").straight(4).label("tick.l").word(a64::kRet);
  assembler_.label("tracer").straight(8).tbz(1, "tracer.l").straight(0).label("tracer.l").straight(9);
  assembler_.word(a64::kRet);
  if (!with_probes_) return;
  assembler_.label("stopper").straight(5).label("stop.call").word(a64::blr(7)).straight(6).word(a64::kEret);
  assembler_.label("callback").straight(7).label("callback.isb").word(a64::kIsb).straight(2).word(a64::kRet);
  indirect_.push_back({"stop.call", {"callback"}});
}

void EtmProgram::function(int f) {
  assembler_.label(fmt::format("f{}", f));
  if (f != 0 && random_.chance(40)) {
    const std::string at = label("entry");
    if (random_.chance(30)) assembler_.word(a64::kBtiC);
    assembler_.word(a64::kMovX9X30).label(at).nop();
    named_.push_back({at, "tracer", true});
  }
  const std::string top = label("top");
  assembler_.label(top);
  if (with_probes_) {
    probes_.push_back(assembler_.here());
    assembler_.straight(static_cast<unsigned>(f));
  }
  for (uint64_t part = random_.between(1, 5); part != 0; --part) piece(f);
  if (f == 0) {
    assembler_.b_cond(static_cast<unsigned>(random_.below(14)), top).b(top);
  } else {
    assembler_.word(random_.chance(70) ? a64::kRet : a64::kRetaa);
  }
  const std::vector<size_t> open = std::move(open_);
  open_.clear();
  for (const size_t site : open) unlikely(site, f);
}

void EtmProgram::branch_over() {
  const std::string skip = label("skip");
  const auto operand = static_cast<unsigned>(random_.below(14));
  switch (random_.below(3)) {
    case 0:
      assembler_.b_cond(operand, skip);
      break;
    case 1:
      assembler_.cbz(operand, skip);
      break;
    default:
      assembler_.tbz(operand, skip);
  }
  filler(3);
  assembler_.label(skip);
}

void EtmProgram::loop() {
  const std::string again = label("again"), branch = label("loop");
  assembler_.label(again);
  filler(3);
  assembler_.straight(1).label(branch).b_cond(1, again);
  loops_.emplace_back(branch, static_cast<unsigned>(random_.between(2, 6)));
}

void EtmProgram::indirect_call(int f) {
  Indirect i{label("icall"), {}};
  assembler_.label(i.at).word(random_.chance(70) ? a64::blr(3) : a64::blraa(3));
  for (int to = f + 1; to < kFunctions; ++to) i.to.push_back(fmt::format("f{}", to));
  indirect_.push_back(std::move(i));
}

void EtmProgram::jump_table() {
  const std::string at = label("ijump"), x = label("case"), y = label("case"), z = label("join");
  assembler_.label(at).word(random_.chance(70) ? a64::br(4) : a64::braa(4)).label(x);
  filler(2);
  assembler_.b(z).label(y);
  filler(2);
  assembler_.label(z);
  indirect_.push_back({at, {x, y}});
}

void EtmProgram::static_branch() {
  const size_t site = named_.size();
  const std::string at = fmt::format("site{}", site);
  assembler_.label(at).nop().label(fmt::format("back{}", site));
  named_.push_back({at, fmt::format("on{}", site), false});
  open_.push_back(site);
}

void EtmProgram::piece(int f) {
  filler(4);
  switch (random_.below(9)) {
    case 0:
      branch_over();
      break;
    case 1:
      loop();
      break;
    case 2:
      if (f + 1 < kFunctions)
        assembler_.bl(fmt::format("f{}", random_.between(static_cast<uint64_t>(f) + 1, kFunctions - 1)));
      break;
    case 3:
      if (f + 1 < kFunctions) indirect_call(f);
      break;
    case 4:
      jump_table();
      break;
    case 5:
      if (random_.chance(30)) assembler_.word(random_.chance(50) ? a64::kIsb : a64::svc(0));
      break;
    default:
      static_branch();
  }
}

// The target of the branch: may look like the other path for a while, or join it without a trace packet.
void EtmProgram::unlikely(size_t site, int f) {
  assembler_.label(fmt::format("on{}", site));
  filler(2);
  const uint64_t shape = random_.below(3);
  if (shape == 0) branch_over();
  if (shape == 1 && f + 1 < kFunctions) assembler_.bl(fmt::format("f{}", f + 1));
  assembler_.b(fmt::format("back{}", site));
}

}  // namespace asof::test
