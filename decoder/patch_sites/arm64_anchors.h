// Code of an arm64 kernel that dates a trace (arch/arm64/anchors.cpp).
#pragma once
#include "decoder/kernel_text/kernel_text.h"

namespace asof {

// aarch64_insn_patch_text_cb(), which every CPU runs under stop_machine when words change; 0: there is none,
// or it has other uses in this kernel besides arming and disarming kprobes (older kernels: jump labels, slots
// of kprobes), so visits to it and records of kprobes do not match one by one.
Addr find_patch_text_cb(const KernelText& kernel);

}  // namespace asof
