// The catalogue of an arm64 kernel: places it is built to patch, and what each can hold. With it a capture
// can be decoded whose changes of text nobody recorded: every such place is doubtful all the time, and the
// trace decides at each visit.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "decoder/kernel_text.h"
#include "decoder/sideband_notices.h"
#include "textstore/builder.h"

namespace asof {

// One word that the kernel replaces by another one, and back.
struct PatchSite {
  Addr addr = 0;
  uint32_t off = 0, on = 0;  // NOP, and what switches something on
};

struct Catalogue {
  std::vector<PatchSite> sites;  // by address
  bool has_jump_labels = false;  // the kernel's jump table was found
};

// Jump labels by the kernel's jump table, which lies in the copy of kcore where that has data, else in
// `vmlinux` (a path, may be empty); and function entries, known by MOV X9, X30 in front, which may call
// ftrace_caller. What cannot be found is told (I-TEXT-509).
Catalogue find_patch_sites(const KernelText& kernel, const std::string& vmlinux, NoticeBook& notices);

// Both words of every site, for all time.
void add_catalogue(const std::vector<PatchSite>& sites, const KernelText& kernel, Builder& builder);

}  // namespace asof
