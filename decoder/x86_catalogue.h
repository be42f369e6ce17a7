// The catalogue of an x86 kernel (docs/live-text.md 7.1, row L13): every jump label may be either way all the
// time, where nobody recorded its changes. The trace decides at each visit.
#pragma once
#include "decoder/jump_table.h"
#include "decoder/sideband.h"
#include "decoder/sideband_notices.h"
#include "textstore/builder.h"

namespace asof {

// Adds what each jump label of the kernel can hold beside what the copy of memory shows. Sites with TEXT_POKE
// records are left to those. Function entries are not in it: what they may call is known to nobody. What
// cannot be found is told (I-TEXT-509).
void add_x86_catalogue(const KernelText& kernel, const SideBand& side, const std::string& vmlinux,
                       Builder& builder, NoticeBook& notices);

}  // namespace asof
