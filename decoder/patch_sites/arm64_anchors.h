// Code of an arm64 kernel that dates a trace (arch/arm64/anchors.cpp).
#pragma once
#include "decoder/kernel_text/kernel_text.h"

namespace asof {

// aarch64_insn_patch_text_cb(), which every CPU runs under stop_machine when words change; 0: there is none,
// or others than kprobes being armed and disarmed use it in this kernel (older kernels: jump labels, slots of
// kprobes), so that visits to it and records of kprobes do not go together one by one.
Addr find_patch_text_cb(const KernelText& kernel);

}  // namespace asof
