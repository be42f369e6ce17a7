// Taken branches as compilers' feedback tools read them. One class for each format of `asof branches`.
#pragma once
#include <tsl/robin_map.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "decoder/io/addr_key.h"
#include "decoder/model/symbol_epochs.h"
#include "tools/profile/taken_branches.h"

namespace asof {

struct BranchEnd {
  const Symbol* symbol = nullptr;
  bool wanted = true;
};
struct NamedBranchEnd {
  BranchEnd end;
  TimeBounds valid{kTimeMax, kTimeMin};
};

// Names of addresses, each looked up once for as long as it is valid.
class BranchNames {
 public:
  // `dsos`: files whose branches are wanted; empty: all.
  BranchNames(const Capture& capture, std::vector<std::string> dsos);
  BranchEnd at(Space space, Addr a, Time t);

 private:
  const Capture& capture_;
  std::vector<std::string> dsos_;
  SymbolEpochs epochs_;
  tsl::robin_map<AddrKey, NamedBranchEnd, AddrKeyHash> entries_;
};

class BranchWriter {
 public:
  using Write = std::function<void(std::string_view)>;
  virtual ~BranchWriter() = default;
  virtual void take(const TakenBranch& b) = 0;
  virtual void finish() = 0;
};

// `perf script -F ip,brstack --show-mmap-events`: mappings, then up to 1,024 branches a line, newest first;
// every branch is in one line. llvm-profgen --perfscript and AutoFDO's readers take it.
std::unique_ptr<BranchWriter> make_perf_script_writer(const Capture& capture, BranchNames& names,
                                                      BranchWriter::Write write);
// BOLT's pre-aggregated profile (perf2bolt --pa): "B FROM TO COUNT MISPREDICTED", "F START END COUNT" for
// code that ran between two branches, "f" where the first came from another function. Addresses less `base`;
// 0: outside the wanted files.
std::unique_ptr<BranchWriter> make_bolt_writer(BranchNames& names, Addr base, BranchWriter::Write write);
// from,to,count,kind,from_symbol,from_dso,to_symbol,to_dso
std::unique_ptr<BranchWriter> make_branch_csv_writer(BranchNames& names, BranchWriter::Write write);

}  // namespace asof
