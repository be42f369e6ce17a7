// x86-64: Intel PT. The factory of its Arch.
#pragma once
#include <memory>

#include "arch/arch.h"
#include "arch/x86/config.h"

namespace asof::x86 {

std::unique_ptr<Arch> make_arch(const Config& config);

// Was all of this trace recorded in VMX non-root operation, by its PIP packets (NR; SDM vol. 3, "Paging
// Information (PIP) Packet")? False where the first sync point has none. Of mapped trace, not of sources.
bool is_guest_trace(const Stream& stream);

}  // namespace asof::x86
