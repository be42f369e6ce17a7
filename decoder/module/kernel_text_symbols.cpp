#include "decoder/module/kernel_text_symbols.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "decoder/io/in_order.h"

namespace asof {
namespace {

constexpr Addr kPage = 4096;

bool is_blank(char c) { return c == ' ' || c == '\t'; }

// Two characters at most: a loop is faster than find_first_of(), which calls memchr() for each.
std::string_view next_field(std::string_view& line) {
  size_t begin = 0;
  while (begin < line.size() && is_blank(line[begin])) ++begin;
  size_t end = begin;
  while (end < line.size() && !is_blank(line[end])) ++end;
  const std::string_view field = line.substr(begin, end - begin);
  line.remove_prefix(end);
  return field;
}

template <class Visit>
void each_line(std::span<const uint8_t> bytes, Visit visit) {
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    visit(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

template <class T>
std::optional<T> number(std::string_view text, int base) {
  if (base == 16 && text.starts_with("0x")) text.remove_prefix(2);
  T value = 0;
  const char* end = text.data() + text.size();
  auto [rest, status] = std::from_chars(text.data(), end, value, base);
  if (text.empty() || status != std::errc() || rest != end) return std::nullopt;
  return value;
}

bool below(const KernelSymbol& a, const KernelSymbol& b) { return a.addr < b.addr; }

// Stable. kallsyms is sorted but for a few hundred short stretches (per-CPU symbols, modules, programs), most of which
// do not overlap their neighbours.
void sort_stretches(std::vector<KernelSymbol>& symbols) {
  std::vector<std::vector<KernelSymbol>::iterator> bounds{symbols.begin()};
  while (bounds.back() != symbols.end())
    bounds.push_back(std::is_sorted_until(bounds.back(), symbols.end(), below));
  while (bounds.size() > 2) {
    size_t kept = 1;
    for (size_t i = 0; i + 2 < bounds.size(); i += 2) {
      const auto first = bounds[i], middle = bounds[i + 1], last = bounds[i + 2];
      std::inplace_merge(std::upper_bound(first, middle, *middle, below), middle,
                         std::lower_bound(middle, last, *std::prev(middle), below), below);
      bounds[kept++] = last;
    }
    if (bounds.size() % 2 == 0) bounds[kept++] = symbols.end();
    bounds.resize(kept);
  }
}

// Parts of about as many bytes each, that begin with a line.
std::vector<std::span<const uint8_t>> pieces_of_lines(std::span<const uint8_t> bytes) {
  constexpr size_t kPiece = 256U << 10U;
  std::vector<std::span<const uint8_t>> out;
  while (!bytes.empty()) {
    const auto rest = bytes.subspan(std::min(kPiece, bytes.size()));
    const auto line_end = std::ranges::find(rest, uint8_t{'\n'});
    const size_t size = bytes.size() - static_cast<size_t>(rest.end() - line_end) + (line_end != rest.end());
    out.push_back(bytes.first(size));
    bytes = bytes.subspan(size);
  }
  return out;
}

std::string_view in_brackets(std::string_view field) {
  const bool has = field.size() > 2 && field.front() == '[' && field.back() == ']';
  return has ? field.substr(1, field.size() - 2) : std::string_view();
}

// By its character; 16 or more: it is none.
constexpr auto kHexDigits = [] {
  std::array<uint8_t, 256> all{};
  all.fill(16);
  for (uint8_t i = 0; i < 10; ++i) all['0' + i] = i;
  for (uint8_t i = 0; i < 6; ++i) all['a' + i] = static_cast<uint8_t>(10 + i);
  return all;
}();

// A line as a 64-bit kernel writes it, "%016lx %c %s[\t[%s]]": opening a capture reads a hundred thousand. Nothing: it is
// another one.
std::optional<KernelSymbol> usual_symbol(std::string_view line) {
  constexpr size_t kDigits = 16, kName = kDigits + 3;
  if (line.size() <= kName || line[kDigits] != ' ' || line[kName - 1] != ' ') return std::nullopt;
  KernelSymbol out{.addr = 0, .type = line[kDigits + 1], .name = {}, .module = {}};
  uint8_t all = 0;
  for (size_t i = 0; i < kDigits; ++i) {
    const uint8_t digit = kHexDigits[static_cast<uint8_t>(line[i])];
    all |= digit;
    out.addr = out.addr << 4U | digit;
  }
  line.remove_prefix(kName);
  const size_t tab = line.find('\t');
  out.name = line.substr(0, tab);
  if (all > 15 || is_blank(out.type) || out.name.empty() || out.name.find(' ') != std::string_view::npos)
    return std::nullopt;
  if (tab == std::string_view::npos) return out;
  line.remove_prefix(tab + 1);
  out.module = in_brackets(line);
  if (out.module.empty() || std::ranges::any_of(out.module, is_blank)) return std::nullopt;
  return out;
}

std::optional<KernelSymbol> any_symbol(std::string_view line) {
  KernelSymbol out;
  const auto addr = number<Addr>(next_field(line), 16);
  const std::string_view type = next_field(line);
  out.name = next_field(line);
  out.module = in_brackets(next_field(line));
  if (!addr || type.size() != 1 || out.name.empty()) return std::nullopt;
  out.addr = *addr;
  out.type = type[0];
  return out;
}

std::vector<KernelSymbol> symbols_in(std::span<const uint8_t> lines) {
  std::vector<KernelSymbol> out;
  each_line(lines, [&](std::string_view line) {
    auto symbol = usual_symbol(line);
    if (!symbol) symbol = any_symbol(line);
    if (symbol && symbol->addr != 0) out.push_back(*symbol);
  });
  return out;
}

}  // namespace

Result<Kallsyms> Kallsyms::load(const std::string& path) {
  auto file = MappedFile::open(path);
  if (!file) return std::unexpected(file.error());
  Kallsyms out;
  out.file_ = *file;
  const auto pieces = pieces_of_lines((*file)->bytes());
  in_order(
      pieces.size(), [&](size_t i) { return symbols_in(pieces[i]); },
      [&](const std::vector<KernelSymbol>& some) {
        out.symbols_.insert(out.symbols_.end(), some.begin(), some.end());
      });
  sort_stretches(out.symbols_);
  out.data_of_modules_ = std::ranges::any_of(out.symbols_, [](const KernelSymbol& s) {
    return !s.module.empty() && !s.is_code() && !s.is_generated();
  });
  if (out.symbols_.empty()) {
    return fail(Code::kKallsymsWithoutAddresses, path, Error::kNoOffset, "no symbol with an address in it",
                "copy /proc/kallsyms as root, with kernel.kptr_restrict=0");
  }
  return out;
}

std::optional<Addr> Kallsyms::address(std::string_view name) const {
  for (const KernelSymbol& s : symbols_) {
    if (s.name == name && s.module.empty()) return s.addr;
  }
  return std::nullopt;
}

bool Kallsyms::has(Addr addr, std::string_view name) const {
  auto it = std::lower_bound(symbols_.begin(), symbols_.end(),
                             KernelSymbol{.addr = addr, .name = {}, .module = {}}, below);
  for (; it != symbols_.end() && it->addr == addr; ++it) {
    if (it->name == name) return true;
  }
  return false;
}

Addr Kallsyms::next(Addr addr) const {
  auto it = std::upper_bound(symbols_.begin(), symbols_.end(),
                             KernelSymbol{.addr = addr, .name = {}, .module = {}}, below);
  return it == symbols_.end() ? UINT64_MAX : it->addr;
}

Result<std::vector<KernelModule>> load_modules(const std::string& path) {
  auto file = MappedFile::open(path);
  if (!file) return std::unexpected(file.error());
  std::vector<KernelModule> out;
  each_line((*file)->bytes(), [&](std::string_view line) {
    KernelModule module;
    module.name = next_field(line);
    const auto size = number<uint64_t>(next_field(line), 10);
    next_field(line);  // reference count
    next_field(line);  // used by
    module.live = next_field(line) == "Live";
    const auto addr = number<Addr>(next_field(line), 16);
    if (!size || *size == 0 || !addr || *addr == 0) return;
    module.range = range_of(*addr, *size);
    out.push_back(std::move(module));
  });
  return out;
}

AddrRange module_text(const KernelModule& module, const Kallsyms& kallsyms) {
  const auto symbols = kallsyms.symbols();
  auto it = std::lower_bound(symbols.begin(), symbols.end(),
                             KernelSymbol{.addr = module.range.begin, .name = {}, .module = {}}, below);
  Addr last_code = 0, first_data = 0;
  for (; it != symbols.end() && it->addr < module.range.end; ++it) {
    if (it->module != module.name) continue;
    if (it->is_code()) {
      last_code = it->addr;
      first_data = 0;
    } else if (first_data == 0) {
      first_data = it->addr & ~(kPage - 1);
    }
  }
  if (last_code != 0 && !kallsyms.has_data_of_modules())
    return {module.range.begin, std::min((last_code | (kPage - 1)) + 1, module.range.end)};
  if (last_code == 0 || first_data <= last_code) return module.range;
  return {module.range.begin, first_data};
}

}  // namespace asof
