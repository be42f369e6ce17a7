// User text: the address spaces of processes over time, what was mapped into them, and which files that was.
// A process has a new space after each exec and, at fork, one that starts with what its parent holds.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "arch/stream.h"
#include "decoder/model/capture.h"
#include "decoder/model/file_finder.h"
#include "decoder/sideband/sideband.h"
#include "decoder/user_text/jit_files.h"
#include "textstore/builder.h"

namespace asof {

class UserText {
 public:
  UserText(const SideBand& side, std::span<const BuildIdEntry> build_ids, FileFinder& files, JitFiles& jits,
           Builder& builder, NoticeBook& notices);

  // Follows the tasks and adds their spaces and mappings as layers. To be called before everything below.
  void add_text();
  // The tasks that run on a CPU, or a single thread, with their spaces, over time.
  std::vector<ContextChange> cpu_contexts(int32_t cpu) const;
  std::vector<ContextChange> thread_contexts(int32_t tid) const;
  // Symbols of the files in these spaces, and of JIT code where a perf-<pid>.map lies in one of `map_dirs`.
  void add_symbols(SymbolTable& symbols, const std::set<Space>& used, std::span<const std::string> map_dirs);
  // Where the files of these spaces are mapped.
  void add_code(CodeFileMap& code, const std::set<Space>& used);

 private:
  struct Mapping {  // until: for symbols; layers need no end, the next one over it has a higher rank
    AddrRange range;
    Time from = kTimeMin, until = kTimeMax;
    uint64_t pgoff = 0;
    uint32_t name = 0, build_id = 0;  // SideBand::names; name 0: not code
    uint32_t file = 0;                // as name, but also of what is no code
    bool writable = false;
    bool written = false;    // the process may have changed the file's bytes in it
    bool misplaced = false;  // the file cannot have been mapped so
  };
  struct JitSymbol {
    AddrRange range;
    Time from = kTimeMin, until = kTimeMax;
    std::string_view name;
    const JitDump* dump = nullptr;
    std::span<const uint8_t> bytes{};
    OriginRef origin = kNoOrigin;
    bool executable = false;  // it was mapped so that it could run
  };
  struct JitFact {  // a piece of code of a file that belongs to a process
    Time time;
    int32_t pid;
    const JitDump* dump;
    const JitCode* code;
  };
  struct Process {  // one space
    Space space = kNoSpace;
    int32_t pid = -1;
    size_t parent = SIZE_MAX;  // forked from
    Time forked = kTimeMin;
    std::vector<Mapping> mappings;
    std::map<Addr, size_t> current;  // by begin, of the current mappings
    Time last_map = kTimeMin;        // of the last record of a mapping, or when the space began
    bool probed = false;             // NOPs of its code may be calls (uprobes)
    std::vector<JitSymbol> jit;
    std::map<Addr, size_t> live_jit;    // by begin, of the code not overwritten yet
    std::map<Addr, size_t> intact_jit;  // those of it that the process cannot have changed since
  };
  struct Change {
    Time time;
    size_t process;
    Space space;  // of it
  };

  void open_jits();
  void use_jit(const JitDump* dump, int32_t pid);
  void jits_until(Time t);
  void add_jit(const JitFact& fact);
  void end_jit(Process& process, AddrRange range, Time t);
  static std::map<Addr, size_t>::iterator first_above(const Process& process, std::map<Addr, size_t>& code,
                                                      Addr begin);
  void remap_jit(Process& process, const TaskFact& fact, Time before);
  void note_written_jit(const JitDump& dump);
  void add_undated_jits();
  OriginRef jit_origin(const JitFact& fact);
  void claim_new_parts(const Process& process, const TaskFact& fact, std::vector<AddrRange>& out) const;
  void map(const TaskFact& fact);
  // Code without a file: of a JIT, trampolines of the kernel.
  static bool has_no_file(std::string_view name);
  static Mapping mapping_of(const TaskFact& fact);
  Mapping add_mapped(Process& process, const TaskFact& fact, std::span<const AddrRange> parts);
  void note_written(const Mapping& mapping, bool probed);
  bool is_misplaced(const Mapping& mapping);
  void add_uprobes(Process& process, Time t);
  void each_alive(const Process& process, AddrRange range,
                  const std::function<void(const Mapping&, AddrRange)>& visit);
  std::vector<AddrRange> mapped_again(const Process& process, const TaskFact& fact);
  void fork(const TaskFact& fact);
  size_t process_of(int32_t pid);
  size_t new_process(int32_t pid, Time t);
  const std::string& build_id_of(const Mapping& mapping) const;
  bool is_one_file(const Mapping& mapping) const;
  const TextFile* file_of(const Mapping& mapping);
  void add_layer(const Process& process, const Mapping& mapping);
  void add_file_bytes(const Layer& all, const TextFile& file, uint64_t pgoff);
  void forget_lost_switches(int32_t cpu, std::vector<ContextChange>& contexts) const;
  void with_spaces(std::vector<ContextChange>& contexts) const;
  void each_mapping(size_t process, const std::function<void(const Mapping&, int rank)>& visit) const;
  void add_file_symbols(SymbolTable& symbols, Space space, const Mapping& mapping, int rank);
  void add_map_file(SymbolTable& symbols, const Process& process, const std::string& path);

  const SideBand& side_;
  FileFinder& files_;
  JitFiles& jits_;
  Builder& builder_;
  NoticeBook& notices_;
  std::unordered_map<std::string, std::string> header_ids_;  // by file name
  std::set<std::string> several_ids_;                        // paths of which it has several
  std::unordered_map<uint64_t, const TextFile*> file_of_;    // by name and build-id
  std::vector<Process> processes_;
  std::unordered_map<int32_t, std::vector<Change>> spaces_of_;  // by pid, in time order
  std::map<const TextFile*, OriginRef> origins_;
  std::map<const TextFile*, std::vector<AddrRange>> code_of_;  // code_in_file()
  std::map<uint32_t, OriginRef> unknown_origins_;              // by name
  std::map<const TextFile*, std::vector<ElfSymbol>> elf_symbols_;
  std::vector<JitFact> jit_facts_;  // by time
  size_t next_jit_ = 0;
  std::vector<JitFact> undated_jits_;
  std::set<std::pair<const JitDump*, int32_t>> used_jits_;
  std::map<std::pair<const JitDump*, std::string_view>, OriginRef> jit_origins_;
  int next_rank_ = kRankMapping;
  std::set<uint32_t> written_;  // names of files that note_written() reported
  std::set<const JitDump*> written_jits_;
  uint64_t steps_ = 0;  // of each_alive() through what was inherited
  size_t symbols_added_ = 0;
};

}  // namespace asof
