// Symbols of an ELF64 file by name, data included: decoder/model/image.h gives those of code. Reads with
// checked bounds; what does not lie in the file counts as absent.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "decoder/io/reader.h"
#include "textstore/address.h"

namespace asof {

class ElfNames {
 public:
  explicit ElfNames(std::span<const uint8_t> file) : file_(file) {
    constexpr uint32_t kSymbolTable = 2;
    Reader in(file_);
    in.seek(40);
    const uint64_t table = in.u64();
    in.seek(58);
    const uint16_t entry = in.u16(), count = in.u16();
    for (uint64_t i = 0; i < count; ++i) {
      Reader section(file_);
      section.seek(table + i * entry);
      section.skip(4);
      const uint32_t type = section.u32();
      section.skip(16);
      const uint64_t offset = section.u64(), size = section.u64();
      const uint32_t link = section.u32();
      if (!section.ok() || type != kSymbolTable) continue;
      symbols_ = part(offset, size);
      Reader strings(file_);
      strings.seek(table + uint64_t{link} * entry + 24);
      const uint64_t at = strings.u64();
      names_ = part(at, strings.u64());
    }
  }

  std::optional<Addr> find(std::string_view name) const {
    std::optional<Addr> out;
    for_each([&](std::string_view n, Addr address) {
      if (n == name && !out) out = address;
    });
    return out;
  }
  template <class Visit>
  void for_each(Visit&& visit) const {
    constexpr size_t kSymbol = 24;
    for (size_t at = 0; at + kSymbol <= symbols_.size(); at += kSymbol) {
      Reader in(symbols_.subspan(at, kSymbol));
      const uint32_t where = in.u32();
      in.skip(4);
      if (where >= names_.size()) continue;
      const auto rest = names_.subspan(where);
      const auto end = std::find(rest.begin(), rest.end(), uint8_t{0});
      if (end == rest.end()) continue;
      visit(std::string_view(reinterpret_cast<const char*>(rest.data()),
                             static_cast<size_t>(end - rest.begin())),
            in.u64());
    }
  }

 private:
  std::span<const uint8_t> part(uint64_t offset, uint64_t size) const {
    if (offset > file_.size()) return {};
    return file_.subspan(offset, std::min<uint64_t>(size, file_.size() - offset));
  }
  std::span<const uint8_t> file_, symbols_, names_;
};

}  // namespace asof
