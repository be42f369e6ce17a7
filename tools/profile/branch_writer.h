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
  // The name of an address is the same at all times.
  bool holds(Space space, Addr a) const;

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

// Taken branches by their ends and names, counted.
class BranchCounts {
 public:
  void add(const TakenBranch& b, BranchNames& names, uint64_t times = 1) {
    const BranchEnd from = names.at(b.from_space, b.from, b.time);
    const BranchEnd to = names.at(b.to_space, b.to, b.time);
    if (from.wanted || to.wanted) counts_[{b.from, b.to, b.kind, from.symbol, to.symbol}] += times;
  }
  void add(const BranchCounts& other) {
    for (const auto& [key, count] : other.counts_) counts_[key] += count;
  }
  // from,to,count,kind,from_symbol,from_dso,to_symbol,to_dso
  void write_csv(const BranchWriter::Write& write) const;

 private:
  struct Key {
    Addr from, to;
    std::string_view kind;
    const Symbol* left;
    const Symbol* entered;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& k) const {
      return ((k.from * kHashFactor) ^ k.to ^ reinterpret_cast<uintptr_t>(k.left)) * kHashFactor >> 16U;
    }
  };
  tsl::robin_map<Key, uint64_t, KeyHash> counts_;
};

}  // namespace asof
