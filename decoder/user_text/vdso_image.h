// The vDSO where no copy of it was kept: the kernel's own image of it, in memory or in its file, or that of
// the kernel that runs here. perf keeps the vDSO in its build-id cache, but not all versions do.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "decoder/model/file_finder.h"
#include "decoder/model/image.h"

namespace asof {

// The image of 64-bit processes (arch/x86/entry/vdso raw_data, arch/arm64/kernel/vdso vdso_start: on a page
// of their own) in segments of the kernel; nothing: they have none. `as_built`: from a file, without what the
// kernel patches in it at boot.
std::optional<TextFile> vdso_of_kernel(std::span<const ElfSegment> segments, uint16_t machine,
                                       const std::string& path, const std::shared_ptr<const void>& owner,
                                       bool as_built);

// That of this process. The kernel that runs here is identified by `kernel_id`, its build-id.
struct OwnVdso {
  TextFile file;
  std::string kernel_id;
};
std::optional<OwnVdso> own_vdso();

}  // namespace asof
