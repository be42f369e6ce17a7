// /proc/kallsyms and /proc/modules as copied together with a kcore: which addresses belong to what. Formats:
// kernel/kallsyms.c s_show(), kernel/module/procfs.c m_show().
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "decoder/model/image.h"
#include "textstore/address.h"
#include "textstore/result.h"

namespace asof {

struct KernelSymbol {
  Addr addr = 0;
  char type = 0;  // as nm prints it: t, T, w, W: code
  std::string_view name;
  // Without brackets; "bpf", "__builtin__ftrace", "__builtin__kprobes" are no modules.
  std::string_view module;

  bool is_code() const { return type == 't' || type == 'T' || type == 'w' || type == 'W'; }
  // Code that no file holds: BPF programs, trampolines, kprobe pages.
  bool is_generated() const { return module == "bpf" || module.starts_with("__builtin__"); }
};

class Kallsyms {
 public:
  // Lines that are not symbols, and symbols at address 0 (kptr_restrict), are skipped. Errors: the file
  // cannot be read, or holds no address at all (E-FILE-301).
  static Result<Kallsyms> load(const std::string& path);

  std::span<const KernelSymbol> symbols() const { return symbols_; }  // by address
  // Of the kernel itself.
  std::optional<Addr> address(std::string_view name) const;
  bool has(Addr addr, std::string_view name) const;
  // The first symbol address above `addr`; UINT64_MAX: none.
  Addr next(Addr addr) const;
  // Of modules (CONFIG_KALLSYMS_ALL).
  bool has_data_of_modules() const { return data_of_modules_; }
  const std::string& path() const { return file_->path(); }

 private:
  std::shared_ptr<const MappedFile> file_;  // the symbols' names live in it
  std::vector<KernelSymbol> symbols_;
  bool data_of_modules_ = false;
};

struct KernelModule {
  std::string name;
  // All of the module as one range, text first (before Linux 6.4), or as long as all its parts.
  AddrRange range;
  bool live = false;
};

// Lines that are not modules, and modules at address 0, are skipped.
Result<std::vector<KernelModule>> load_modules(const std::string& path);

// Pages of a live module that hold code: from its start to the first page with only data symbols after the
// last code symbol; to the end of that one's page where kallsyms has no data symbols of any module. Without
// symbols the whole range.
AddrRange module_text(const KernelModule& module, const Kallsyms& kallsyms);

}  // namespace asof
