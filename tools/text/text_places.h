// The argument of `asof text`: ADDR|SYM[+OFF][@TIME] as written, and the ranges it means.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "decoder/model/capture.h"

namespace asof {

inline constexpr uint64_t kMaxTextLength = 16 << 20;

struct TextQuery {
  std::string name;  // symbol, empty: `address`
  Addr address = 0;
  uint64_t offset = 0;
  std::optional<uint64_t> length;  // of ADDR-END
  std::optional<Time> time;
};

struct TextPlace {
  Space space = kKernelSpace;
  AddrRange range;
  const Symbol* symbol = nullptr;  // range.begin lies in it
};

// Seconds, or "start" and "end", which are before and after everything.
std::optional<Time> parse_instant(std::string_view text);

// ADDR|SYM[+OFF][@TIME] or ADDR-END[@TIME]. An address starts with a digit or is all hexadecimal with 0x;
// symbols may hold almost anything.
std::optional<TextQuery> parse_text_query(std::string text);

// `length` 0: the function, or 64 bytes. `spaces`: only these; empty: every one that has the address.
std::vector<TextPlace> find_text_places(const Capture& capture, const TextQuery& query, uint64_t length,
                                        const std::vector<Space>& spaces);

// "ffffffff810001fa vfs_read+0xa ([kernel.kallsyms])", or the bare address.
std::string name_of_place(const TextPlace& place);

// The spaces that processes of this pid had, in order, as far as any traced stream ran them.
std::vector<Space> spaces_of(const Capture& capture, int32_t pid);

}  // namespace asof
