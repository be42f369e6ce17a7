// The catalogue of an x86 kernel (docs/live-text.md 2 and 7.1, rows L03 and L13): the sites that its own code
// patches, and what they can hold. With --catalogue every jump label may be in either state all the time,
// where its changes were not recorded. Where records were lost it is used without the option, from the loss
// on, and function entries with it. The trace decides at each visit.
#pragma once
#include "decoder/io/sideband_notices.h"
#include "decoder/patch_sites/jump_table.h"
#include "decoder/sideband/sideband.h"
#include "textstore/builder.h"

namespace asof {

// Adds what each jump label can hold besides what the copy of memory shows, and, for losses only, what each
// function entry can: a no-op, or a call of what recorded pokes made other entries call. Other targets are
// unknown. `always`: --catalogue was given; what cannot be found is reported then (I-TEXT-509).
void add_x86_catalogue(const KernelText& kernel, const SideBand& side, const TextFile* vmlinux, bool always,
                       Builder& builder, NoticeBook& notices);

}  // namespace asof
