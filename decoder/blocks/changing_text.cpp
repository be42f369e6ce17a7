#include "decoder/blocks/changing_text.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "decoder/blocks/block_capture.h"
#include "textstore/builder.h"
#include "textstore/text_store_impl.h"

namespace asof::blocks {
namespace {

constexpr AddrRange kKernel{Addr{1} << 63U, UINT64_MAX};

enum VersionFlag : uint8_t { kHasFrom = 1, kHasUntil = 2, kHasBytes = 4, kIsUnsure = 8, kBytesOfPoke = 16 };

// Of the poke that a version is of, or was before: what it has of the cell, or nullptr.
const uint8_t* bytes_of_poke(std::span<const PokeRecord> pokes, AddrRange cell, OriginRef origin) {
  if (!is_poke(origin) || poke_index(origin) >= pokes.size()) return nullptr;
  const PokeRecord& p = pokes[poke_index(origin)];
  const auto bytes = is_before_poke(origin) ? p.old_bytes() : p.new_bytes();
  const uint64_t at = cell.begin - p.addr;
  if (cell.begin < p.addr || at > bytes.size() || cell.size() > bytes.size() - at) return nullptr;
  return bytes.data() + at;
}

void put_version(Writer& w, const TextStore& text, AddrRange cell, const Version& v, OriginRef number,
                 Time& last) {
  const uint8_t* poke = v.bytes != nullptr ? bytes_of_poke(text.pokes(), cell, v.origin) : nullptr;
  if (poke != nullptr && std::memcmp(poke, v.bytes, cell.size()) != 0) poke = nullptr;
  const bool from = v.from != kTimeMin, until = v.until != kTimeMax;
  w.u8(static_cast<uint8_t>((from ? kHasFrom : 0) | (until ? kHasUntil : 0) | (v.unsure ? kIsUnsure : 0) |
                            (poke != nullptr      ? kBytesOfPoke
                             : v.bytes != nullptr ? kHasBytes
                                                  : 0)));
  for (const auto& [has, time] : {std::pair(from, v.from), std::pair(until, v.until)}) {
    if (!has) continue;
    w.difference(static_cast<uint64_t>(last), static_cast<uint64_t>(time));
    last = time;
  }
  w.varint(number);
  if (poke == nullptr && v.bytes != nullptr) w.bytes({v.bytes, cell.size()});
}

// Those that differ, and where pokes are, which need not.
std::vector<Cell> changing_cells(const TextStore& text) {
  std::vector<Addr> poked;
  for (const PokeRecord& p : text.pokes()) poked.push_back(p.addr);
  std::ranges::sort(poked);
  std::vector<Cell> cells = text.cells(kKernelSpace, kKernel);
  std::erase_if(cells, [&](const Cell& c) {
    if (c.versions.empty()) return true;
    const auto at = std::ranges::lower_bound(poked, c.range.begin);
    return c.stable() && (at == poked.end() || *at >= c.range.end);
  });
  return cells;
}

}  // namespace

void put_poke_head(Writer& w, const PokeRecord& p) {
  w.varint(p.addr);
  w.signed_varint(p.time);
  w.varint(p.file_offset);
  w.varint(p.source);
  w.varint(p.old_len);
  w.varint(p.new_len);
}

PokeRecord take_poke_head(Source& in) {
  PokeRecord p;
  p.addr = in.varint();
  p.time = in.signed_varint();
  p.file_offset = in.varint();
  p.source = static_cast<uint32_t>(in.varint());
  const uint64_t old_len = in.varint(), new_len = in.varint();
  if (std::max(old_len, new_len) > UINT16_MAX) in.take(UINT64_MAX);
  p.old_len = static_cast<uint16_t>(old_len);
  p.new_len = static_cast<uint16_t>(new_len);
  return p;
}

void put_pokes(Writer& w, const TextStore& text) {
  w.varint(text.pokes().size());
  for (const PokeRecord& p : text.pokes()) {
    put_poke_head(w, p);
    w.bytes(p.old_bytes());
    w.bytes(p.new_bytes());
  }
}

void put_losses(Writer& w, std::span<const LostRecords> losses) {
  w.varint(losses.size());
  for (const LostRecords& l : losses) {
    w.varint(l.source);
    w.signed_varint(l.after);
    w.signed_varint(l.until);
    w.varint(l.count);
  }
}

void take_losses(Source& in, std::vector<LostRecords>& out) {
  for (uint64_t i = 0, n = in.count(4); i < n && in.ok(); ++i) {
    LostRecords& l = out.emplace_back();
    l.source = static_cast<uint32_t>(in.varint());
    l.after = in.signed_varint();
    l.until = in.signed_varint();
    l.count = in.varint();
  }
}

void put_changing_text(Writer& w, const TextStore& text, const NumberOf& number_of) {
  put_losses(w, text.losses());
  w.signed_varint(text.unsure_from());
  const std::vector<Cell> cells = changing_cells(text);
  w.varint(cells.size());
  Addr end = 0;
  Time last = 0;
  for (const Cell& c : cells) {
    w.varint(c.range.begin - end);
    w.varint(c.range.size());
    end = c.range.end;
    w.varint(c.versions.size());
    for (const Version& v : c.versions) put_version(w, text, c.range, v, number_of(v.origin), last);
  }
}

struct ChangingText::Taken {
  TextStore store = Builder().build();
  BytePool pool;
  std::vector<PokeRecord> pokes;
  std::shared_ptr<SpaceTable> kernel;  // nullptr: the stream does not have it

  StoreAccess::Impl& impl() { return StoreAccess::of(store); }
  bool take_version(Source& in, AddrRange cell, Time& last, Version& v);
  bool take_cells(Source& in);
  std::optional<TextStore> of_pokes_alone();
};

ChangingText::ChangingText() : taken_(std::make_unique<Taken>()) {}
ChangingText::~ChangingText() = default;

void ChangingText::take_origins(Source& in) {
  for (uint64_t i = 0, n = in.count(4); i < n && in.ok(); ++i)
    taken_->impl().origins.push_back(take_origin(in));
}

void ChangingText::take_pokes(Source& in) {
  for (uint64_t i = 0, n = in.count(6); i < n && in.ok(); ++i) {
    PokeRecord p = take_poke_head(in);
    const auto old_bytes = in.take(p.old_len), new_bytes = in.take(p.new_len);
    const bool empty = p.old_len == 0 && p.new_len == 0;
    const bool outside = std::max(p.old_len, p.new_len) > UINT64_MAX - p.addr;
    if (empty || outside || p.time == kTimeMin) in.take(UINT64_MAX);
    if (!in.ok()) return;
    p.bytes = taken_->pool.intern(old_bytes, new_bytes);
    taken_->pokes.push_back(p);
  }
}

bool ChangingText::Taken::take_version(Source& in, AddrRange cell, Time& last, Version& v) {
  const uint8_t flags = in.u8();
  for (const auto& [has, time] : {std::pair(kHasFrom, &v.from), std::pair(kHasUntil, &v.until)}) {
    if ((flags & has) != 0) *time = last = static_cast<Time>(in.difference(static_cast<uint64_t>(last)));
  }
  v.unsure = (flags & kIsUnsure) != 0;
  const uint64_t origin = in.varint();
  v.origin = static_cast<OriginRef>(origin);
  const uint64_t most = is_poke(v.origin) ? pokes.size() : impl().origins.size();
  if (!in.ok() || v.origin != origin || v.from > v.until) return false;
  if ((is_poke(v.origin) ? poke_index(v.origin) : v.origin) >= most) return false;
  if ((flags & kBytesOfPoke) != 0) {
    v.bytes = bytes_of_poke(pokes, cell, v.origin);
    return v.bytes != nullptr;
  }
  if ((flags & kHasBytes) == 0) return true;
  const auto bytes = in.take(cell.size());
  if (in.ok()) v.bytes = pool.intern(bytes);
  return in.ok();
}

bool ChangingText::Taken::take_cells(Source& in) {
  SpaceTable table;
  Addr end = 0;
  Time last = 0;
  for (uint64_t i = 0, n = in.count(4); i < n && in.ok(); ++i) {
    const uint64_t by = in.varint(), size = in.varint();
    if (size == 0 || by > UINT64_MAX - end || size > UINT64_MAX - end - by) return false;
    if (by != 0) table.cells.push_back({end, table.versions.size()});
    const AddrRange cell{end + by, end + by + size};
    end = cell.end;
    table.cells.push_back({cell.begin, table.versions.size()});
    for (uint64_t k = 0, versions = in.count(2); k < versions; ++k) {
      Version v;
      if (!take_version(in, cell, last, v)) return false;
      if (k != 0 && (v.from < table.versions.back().from || v.until < table.versions.back().until))
        return false;
      table.versions.push_back(v);
    }
  }
  table.cells.push_back({end, table.versions.size()});
  kernel = std::make_shared<SpaceTable>(std::move(table));
  return in.ok();
}

void ChangingText::take_text(Source& in) {
  take_losses(in, taken_->impl().losses);
  taken_->impl().unsure_from = in.signed_varint();
  if (!taken_->take_cells(in)) in.take(UINT64_MAX);
}

// Nothing, where it takes some pokes for repeats of others, as the whole text did not: origins are numbers of pokes.
std::optional<TextStore> ChangingText::Taken::of_pokes_alone() {
  Builder builder;
  for (size_t i = 1; i < impl().origins.size(); ++i) builder.add_origin(impl().origins[i]);
  for (const PokeRecord& p : pokes) {
    Poke poke;
    poke.addr = p.addr;
    poke.time = p.time;
    poke.file_offset = p.file_offset;
    poke.source = p.source;
    poke.old_bytes = p.old_bytes();
    poke.new_bytes = p.new_bytes();
    builder.add_poke(poke);
  }
  TextStore made = std::move(builder).build();
  const auto same = [](const PokeRecord& a, const PokeRecord& b) {
    return a.addr == b.addr && a.time == b.time && a.file_offset == b.file_offset;
  };
  if (!std::ranges::equal(made.pokes(), pokes, same)) return std::nullopt;
  return made;
}

TextStore ChangingText::finish() && {
  Taken& t = *taken_;
  if (t.kernel == nullptr) {
    if (auto made = t.of_pokes_alone()) return std::move(*made);
    t.kernel = std::make_shared<SpaceTable>();
    t.kernel->cells.push_back({0, 0});
  }
  StoreAccess::Impl& impl = t.impl();
  t.pool.freeze();
  impl.pool = std::move(t.pool);
  impl.pokes = std::move(t.pokes);
  impl.spaces.assign(1, t.kernel);
  return std::move(t.store);
}

}  // namespace asof::blocks
