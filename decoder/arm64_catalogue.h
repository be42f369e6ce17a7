// The catalogue of an arm64 kernel: places it is built to patch, and what each can hold. With it a capture
// can be decoded whose changes of text nobody recorded: every such place is doubtful all the time, and the
// trace decides at each visit.
#pragma once
#include <cstdint>
#include <vector>

#include "decoder/kernel_text.h"
#include "decoder/sideband_notices.h"
#include "textstore/builder.h"

namespace asof {

// A place whose word the kernel replaces, and all that it puts there.
struct PatchSite {
  Addr addr = 0;
  std::vector<uint32_t> words;
};

struct Catalogue {
  std::vector<PatchSite> sites;  // by address
  AddrRange
      complete;  // where it has every place: the kernel without its modules, if the jump table was found
};

// Jump labels by the kernel's jump table, which lies in the copy of kcore where that has data, else in
// `vmlinux` (KernelText::find_vmlinux()); and function entries, known by MOV X9, X30 in front, which may call
// ftrace_caller or ftrace_regs_caller. A table most of whose places hold neither of their words is of another
// kernel. What cannot be found is told (I-TEXT-509).
Catalogue find_patch_sites(const KernelText& kernel, const TextFile* vmlinux, NoticeBook& notices);

// All words of every site, for all time.
void add_catalogue(const std::vector<PatchSite>& sites, const KernelText& kernel, Builder& builder);

}  // namespace asof
