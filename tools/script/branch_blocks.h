// BranchBlocks: the code between the branches of a branch stack, perf's field brstackinsn. It is that which ran, not
// what is at its address at some other time.
#pragma once
#include <string>

#include "tools/script/code_of_blocks.h"
#include "tools/script/script_names.h"
#include "tools/script/script_record.h"
#include "tools/script/thread_stacks.h"

namespace asof {

class BranchBlocks {
 public:
  // `lengths`: the length of each instruction as well. `most`: only so many blocks, the last; 0: all.
  BranchBlocks(const CodeOfBlocks& code, ScriptNames& names, bool lengths, size_t most)
      : code_(code), names_(names), lengths_(lengths), most_(most) {}

  // The blocks up to the sample `r`, oldest first.
  void append(const ScriptRecord& r, const ThreadStack& stack, std::string& out);

 private:
  using Ran = std::vector<ThreadStack::Ran>;
  struct Place {
    Space space;
    Time time;
  };
  void block(const Place& place, Addr from, const ThreadStack::TakenBranch& branch, std::string& out);
  void last_block(const ScriptRecord& r, const ThreadStack& stack, std::string& out);
  void symbol(const Place& place, Addr ip, std::string& out);
  void instruction(Addr ip, std::span<const uint8_t> bytes, std::string& out) const;
  void jump(Addr ip, std::span<const uint8_t> bytes, uint32_t flags, std::string& out) const;

  const CodeOfBlocks& code_;
  ScriptNames& names_;
  bool lengths_;
  size_t most_;
  const Symbol* shown_ = nullptr;  // the symbol whose name was shown last
};

}  // namespace asof
