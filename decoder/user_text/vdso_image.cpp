#include "decoder/user_text/vdso_image.h"

#include <elf.h>
#include <sys/auxv.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>
#include <vector>

namespace asof {
namespace {

constexpr Addr kPage = 4096;
constexpr size_t kMostBytes = 64U << 10U;  // real ones have two to four pages
constexpr std::string_view kName = "linux-vdso.so.1";

bool is_elf64(std::span<const uint8_t> bytes) {
  return bytes.size() > EI_CLASS && std::memcmp(bytes.data(), ELFMAG, SELFMAG) == 0 &&
         bytes[EI_CLASS] == ELFCLASS64;
}

std::optional<TextFile> vdso_in(std::span<const uint8_t> bytes, const std::string& path,
                                const std::shared_ptr<const void>& owner, bool as_built) {
  auto elf = ElfImage::parse(bytes, path, owner);
  if (!elf) return std::nullopt;
  uint64_t size = 0;
  for (const ElfSegment& s : (*elf)->segments()) size = std::max(size, s.file_offset + s.bytes.size());
  const auto loaded = bytes.first(std::min<uint64_t>(size, bytes.size()));
  if (std::search(loaded.begin(), loaded.end(), kName.begin(), kName.end()) == loaded.end())
    return std::nullopt;
  return TextFile{path, (*elf)->build_id(), loaded, *elf, *elf, as_built};
}

}  // namespace

std::optional<TextFile> vdso_of_kernel(std::span<const ElfSegment> segments, uint16_t machine,
                                       const std::string& path, const std::shared_ptr<const void>& owner,
                                       bool as_built) {
  for (const ElfSegment& segment : segments) {
    for (uint64_t at = (kPage - segment.address % kPage) % kPage; at < segment.bytes.size(); at += kPage) {
      const auto rest = segment.bytes.subspan(at);
      if (!is_elf64(rest)) continue;
      auto file = vdso_in(rest.first(std::min(rest.size(), kMostBytes)), path, owner, as_built);
      if (file && file->elf->machine() == machine) return file;
    }
  }
  return std::nullopt;
}

std::optional<OwnVdso> own_vdso() {
  const Addr begin = getauxval(AT_SYSINFO_EHDR);
  std::ifstream maps("/proc/self/maps");
  Addr end = 0;
  for (std::string line; begin != 0 && std::getline(maps, line);) {
    if (line.ends_with("[vdso]")) end = std::stoull(line.substr(line.find('-') + 1), nullptr, 16);
  }
  if (end <= begin || end - begin > kMostBytes) return std::nullopt;
  const auto* first =
      reinterpret_cast<const uint8_t*>(begin);  // NOLINT(performance-no-int-to-ptr): from the kernel
  const auto copy = std::make_shared<const std::vector<uint8_t>>(first, first + (end - begin));
  // Patched for this machine, which may not be the recording one.
  auto file = vdso_in(*copy, "[vdso] of the running kernel", copy, true);
  if (!file) return std::nullopt;
  OwnVdso own{*file, {}};
  // ELF notes of the running kernel: n_namesz, n_descsz, n_type, name, id.
  std::ifstream notes("/sys/kernel/notes", std::ios::binary);
  const std::vector<uint8_t> raw{std::istreambuf_iterator<char>(notes), {}};
  constexpr std::array<uint8_t, 8> kHead = {NT_GNU_BUILD_ID, 0, 0, 0, 'G', 'N', 'U', 0};
  const auto at = std::search(raw.begin(), raw.end(), kHead.begin(), kHead.end());
  const auto offset = static_cast<size_t>(at - raw.begin());
  if (at == raw.end() || offset < 8) return own;
  const size_t size = raw[offset - 4], id = offset + kHead.size();
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (size_t i = id; i < std::min(id + size, raw.size()); ++i) {
    own.kernel_id += kDigits[raw[i] >> 4U];
    own.kernel_id += kDigits[raw[i] & 15U];
  }
  return own;
}

}  // namespace asof
