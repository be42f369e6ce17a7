// The form is that of perf_sample__fprintf_brstackinsn() in perf's tools/perf/builtin-script.c. Unlike perf, code up to
// the sample goes on over conditional branches that were not taken, and is there in a loop whose branch is the sample.
#include "tools/script/branch_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "tools/output/format.h"

namespace asof {
namespace {

constexpr std::string_view kMismatch = "\tmismatch of LBR data and executable\n";

std::string bytes_text(std::span<const uint8_t> bytes) {
  return bytes.empty() ? "?" : fmt::format("insn: {} ", format_bytes(bytes));
}

// Instructions in the order in which they ran, as long as each follows the one before it: visit(ip, bytes) until it
// returns false. False: it never did.
template <class Visit>
bool walk(const CodeOfBlocks& code, const std::vector<ThreadStack::Ran>& ran, Addr ip, const Visit& visit) {
  for (const ThreadStack::Ran& r : ran) {
    const CodeOfBlocks::Piece& p = code.at(r.piece);
    if (p.ip != ip) return false;
    size_t at = 0;
    for (uint32_t i = 0; i < r.count; ++i) {
      const size_t length = p.lengths[i];
      if (!visit(ip, std::span(p.bytes).subspan(at, length))) return true;
      at += length;
      ip += length;
    }
  }
  return false;
}

}  // namespace

void BranchBlocks::symbol(const Place& place, Addr ip, std::string& out) {
  const ScriptName n = names_.at(place.space, ip, place.time);
  if (n.symbol == nullptr || n.symbol == shown_) return;
  fmt::format_to(std::back_inserter(out), "\t{}", n.symbol->shown());
  if (n.offset != 0) fmt::format_to(std::back_inserter(out), "+{}", n.offset);
  out += ":\n";
  shown_ = n.symbol;
}

void BranchBlocks::instruction(Addr ip, std::span<const uint8_t> bytes, std::string& out) const {
  fmt::format_to(std::back_inserter(out), "\t{:016x}\t{}", ip, bytes_text(bytes));
  if (lengths_) fmt::format_to(std::back_inserter(out), "\tilen: {}", bytes.size());
  out += '\n';
}

void BranchBlocks::jump(Addr ip, std::span<const uint8_t> bytes, uint32_t flags, std::string& out) const {
  fmt::format_to(std::back_inserter(out), "\t{:016x}\t{:<30}\t", ip, bytes_text(bytes));
  if (lengths_) fmt::format_to(std::back_inserter(out), "ilen: {}\t", bytes.size());
  fmt::format_to(std::back_inserter(out), "#{}{}\n", (flags & kFlagInTx) != 0 ? " INTX" : "",
                 (flags & kFlagTxAbort) != 0 ? " ABORT" : "");
}

void BranchBlocks::block(const Place& place, Addr from, const ThreadStack::TakenBranch& b, std::string& out) {
  if (from == 0 || b.from == 0) return;
  Addr next = from;
  const bool met = walk(code_, b.ran, from, [&](Addr ip, std::span<const uint8_t> bytes) {
    symbol(place, ip, out);
    next = ip + bytes.size();
    if (ip == b.from) {
      jump(ip, bytes, b.flags, out);
      return false;
    }
    instruction(ip, bytes, out);
    return true;
  });
  if (met) return;
  // An interrupt comes in front of an instruction, which has not run.
  if (next == b.from && (b.flags & kFlagAsync) != 0) {
    symbol(place, next, out);
    jump(next, {}, b.flags, out);
  } else if (next != from) {
    out += kMismatch;
  }
}

void BranchBlocks::last_block(const ScriptRecord& r, const ThreadStack& stack, std::string& out) {
  const ThreadStack::TakenBranch& last = stack.branches.front();
  const Place place{r.space, r.time};
  if (last.to != 0) symbol(place, last.to, out);
  bool any = false;
  const bool met = walk(code_, stack.ran, last.to, [&](Addr ip, std::span<const uint8_t> bytes) {
    instruction(ip, bytes, out);
    any = true;
    return ip != r.ip;
  });
  if (!any) {
    instruction(r.ip, std::span(r.insn).first(r.insn_size), out);
  } else if (!met) {
    out += "\t... not reaching sample ...\n";
  }
}

void BranchBlocks::append(const ScriptRecord& r, const ThreadStack& stack, std::string& out) {
  const auto& branches = stack.branches;
  if (branches.empty()) return;
  out += '\n';
  shown_ = nullptr;
  // How the oldest branch was reached is not shown.
  const size_t count = most_ == 0 ? branches.size() : std::min(branches.size(), most_ + 1);
  const ThreadStack::TakenBranch& oldest = branches[count - 1];
  if (oldest.from != 0 && oldest.insn_size != 0) {
    symbol({oldest.from_space, oldest.time}, oldest.from, out);
    jump(oldest.from, std::span(oldest.insn).first(oldest.insn_size), oldest.flags, out);
  }
  for (size_t i = count - 1; i-- > 0;)
    block({branches[i].from_space, branches[i].time}, branches[i + 1].to, branches[i], out);
  last_block(r, stack, out);
}

}  // namespace asof
