// The catalogue of an arm64 kernel: sites it is built to patch, and what each can hold. With it a capture can
// be decoded whose changes of text were not recorded: every such site is doubtful all the time, and the trace
// decides at each visit.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "decoder/io/sideband_notices.h"
#include "decoder/kernel_text/kernel_text.h"
#include "textstore/builder.h"

namespace asof {

// A site whose word the kernel replaces, and all that it puts there.
struct CatalogueSite {
  Addr addr = 0;
  std::vector<uint32_t> words;
  bool is_label = false;  // a jump label; else a function's entry
};

struct Catalogue {
  std::vector<CatalogueSite> sites;  // by address
  AddrRange text;                    // the kernel without its modules
  // Are all jump labels in `text` among the sites? All function entries, with all that they can call?
  bool has_labels = false, has_entries = false;
};

// Jump labels by the kernel's jump table, which is in the copy of kcore where that has data, else in
// `vmlinux` (KernelText::find_vmlinux()); and function entries, recognised by MOV X9, X30 before them, which
// may call ftrace_caller or ftrace_regs_caller. A table most of whose sites hold neither of their words is of
// another kernel. Entries that call BPF trampolines directly (`has_trampolines`: such trampolines exist) are
// not known. What cannot be found is reported (I-TEXT-509), unless `notices` is nullptr.
Catalogue find_patch_sites(const KernelText& kernel, const TextFile* vmlinux, bool has_trampolines,
                           NoticeBook* notices);

// All words of every site, for all time.
void add_catalogue(std::span<const CatalogueSite> sites, const KernelText& kernel, Builder& builder);
// All words of every site from the first loss of records on.
void add_lost_labels(std::span<const CatalogueSite> sites, const KernelText& kernel, Builder& builder);

}  // namespace asof
