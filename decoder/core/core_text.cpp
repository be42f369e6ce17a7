#include "decoder/core/core_text.h"

#include <algorithm>
#include <map>

#include "decoder/blocks/block_capture.h"
#include "decoder/blocks/changing_text.h"
#include "textstore/builder.h"
#include "textstore/text_store_impl.h"

namespace asof::core {
namespace {

using Impl = StoreAccess::Impl;

struct Extent {
  const uint8_t *begin, *end;
  uint64_t at = 0;  // in the section
};

// All bytes that a store points to, as ranges of memory that do not overlap.
class Extents {
 public:
  void add(const uint8_t* at, uint64_t size) {
    if (at != nullptr && size != 0) all_.push_back({at, at + size});
  }
  void join() {
    std::ranges::sort(all_, std::less<>{}, &Extent::begin);
    size_t kept = 0;
    for (const Extent& e : all_) {
      if (kept != 0 && e.begin <= all_[kept - 1].end)
        all_[kept - 1].end = std::max(all_[kept - 1].end, e.end);
      else
        all_[kept++] = e;
    }
    all_.resize(kept);
    uint64_t at = 0;
    for (Extent& e : all_) {
      e.at = at;
      at += static_cast<uint64_t>(e.end - e.begin);
    }
  }
  // Of bytes that were added; not null.
  uint64_t place(const uint8_t* at) const {
    const auto after = std::ranges::upper_bound(all_, at, std::less<>{}, &Extent::begin);
    const Extent& e = *std::prev(after);
    return e.at + static_cast<uint64_t>(at - e.begin);
  }
  std::vector<std::span<const uint8_t>> spans() const {
    std::vector<std::span<const uint8_t>> out;
    out.reserve(all_.size());
    for (const Extent& e : all_) out.emplace_back(e.begin, e.end);
    return out;
  }

 private:
  std::vector<Extent> all_;
};

// Each table once: processes share their parents'.
struct Tables {
  std::vector<const SpaceTable*> all;
  std::map<const SpaceTable*, uint64_t> number;
  explicit Tables(const Impl& impl) {
    for (const auto& space : impl.spaces) {
      if (number.try_emplace(space.get(), all.size()).second) all.push_back(space.get());
    }
  }
};

uint64_t size_of(const SpaceTable& t, size_t cell) {
  const Addr end = cell + 1 < t.cells.size() ? t.cells[cell + 1].begin : UINT64_MAX;
  return end - t.cells[cell].begin;
}
uint64_t versions_end(const SpaceTable& t, size_t cell) {
  return cell + 1 < t.cells.size() ? t.cells[cell + 1].first : t.versions.size();
}

template <class Each>
void for_each_version(const SpaceTable& t, Each each) {
  for (size_t c = 0; c < t.cells.size(); ++c) {
    for (uint64_t v = t.cells[c].first; v < versions_end(t, c); ++v) each(t.versions[v], size_of(t, c));
  }
}

enum VersionFlag : uint8_t { kHasFrom = 1, kHasUntil = 2, kHasBytes = 4, kIsUnsure = 8 };

void put_version(Writer& w, const Version& v, const Extents& extents) {
  const bool from = v.from != kTimeMin, until = v.until != kTimeMax, bytes = v.bytes != nullptr;
  w.u8(static_cast<uint8_t>((from ? kHasFrom : 0) | (until ? kHasUntil : 0) | (bytes ? kHasBytes : 0) |
                            (v.unsure ? kIsUnsure : 0)));
  if (from) w.signed_varint(v.from);
  if (until) w.signed_varint(v.until);
  if (bytes) w.varint(extents.place(v.bytes));
  w.varint(v.origin);
}

void put_table(Writer& w, const SpaceTable& t, const Extents& extents) {
  w.varint(t.cells.size());
  Addr last = 0;
  for (size_t c = 0; c < t.cells.size(); ++c) {
    w.varint(t.cells[c].begin - last);
    last = t.cells[c].begin;
    w.varint(size_of(t, c));
    w.varint(versions_end(t, c) - t.cells[c].first);
    for (uint64_t v = t.cells[c].first; v < versions_end(t, c); ++v) put_version(w, t.versions[v], extents);
  }
}

void put_facts(Writer& w, const Impl& impl, const Extents& extents) {
  w.varint(impl.origins.size());
  for (const Origin& o : impl.origins) blocks::put_origin(w, o);
  w.varint(impl.pokes.size());
  for (const PokeRecord& p : impl.pokes) {
    blocks::put_poke_head(w, p);
    if (p.old_len + p.new_len != 0) w.varint(extents.place(p.bytes));
  }
  blocks::put_losses(w, impl.losses);
  w.signed_varint(impl.unsure_from);
  w.varint(impl.notices.size());
  for (const TextNotice& n : impl.notices) {
    w.u8(static_cast<uint8_t>(n.kind));
    w.varint(n.addr);
    w.signed_varint(n.from);
    w.signed_varint(n.until);
    w.text(n.text);
  }
}

// Everything is checked: what a wrong table would make of look-ups is no damage that they would see.
class StoreReader {
 public:
  StoreReader(std::span<const uint8_t> store, std::span<const uint8_t> bytes) : in_(store), bytes_(bytes) {}

  bool read(Impl& out) { return facts(out) && tables(out) && in_.ok() && in_.left() == 0; }

 private:
  bool facts(Impl& out);
  bool tables(Impl& out);
  bool table(const Impl& out, SpaceTable& t);
  bool version(const Impl& out, uint64_t size, Version& v);
  const uint8_t* bytes_at(uint64_t at, uint64_t size) {
    if (at <= bytes_.size() && size <= bytes_.size() - at) return bytes_.data() + at;
    in_.take(UINT64_MAX);
    return nullptr;
  }

  Source in_;
  std::span<const uint8_t> bytes_;
};

bool StoreReader::facts(Impl& out) {
  out.origins.clear();
  for (uint64_t i = 0, n = in_.count(4); i < n && in_.ok(); ++i)
    out.origins.push_back(blocks::take_origin(in_));
  for (uint64_t i = 0, n = in_.count(6); i < n && in_.ok(); ++i) {
    PokeRecord& p = out.pokes.emplace_back(blocks::take_poke_head(in_));
    const uint64_t size = uint64_t{p.old_len} + p.new_len;
    if (size != 0) p.bytes = bytes_at(in_.varint(), size);
  }
  blocks::take_losses(in_, out.losses);
  out.unsure_from = in_.signed_varint();
  for (uint64_t i = 0, n = in_.count(5); i < n && in_.ok(); ++i) {
    TextNotice& t = out.notices.emplace_back();
    const uint8_t kind = in_.u8();
    if (kind > static_cast<uint8_t>(TextNotice::Kind::kTooComplex)) return false;
    t.kind = static_cast<TextNotice::Kind>(kind);
    t.addr = in_.varint();
    t.from = in_.signed_varint();
    t.until = in_.signed_varint();
    t.text = in_.text();
  }
  return in_.ok() && !out.origins.empty();
}

bool StoreReader::version(const Impl& out, uint64_t size, Version& v) {
  const uint8_t flags = in_.u8();
  if ((flags & kHasFrom) != 0) v.from = in_.signed_varint();
  if ((flags & kHasUntil) != 0) v.until = in_.signed_varint();
  if ((flags & kHasBytes) != 0) v.bytes = bytes_at(in_.varint(), size);
  v.unsure = (flags & kIsUnsure) != 0;
  v.origin = static_cast<OriginRef>(in_.varint());
  const uint64_t most = is_poke(v.origin) ? out.pokes.size() : out.origins.size();
  return in_.ok() && v.from <= v.until && (is_poke(v.origin) ? poke_index(v.origin) : v.origin) < most;
}

bool StoreReader::table(const Impl& out, SpaceTable& t) {
  Addr begin = 0;
  std::vector<uint64_t> sizes;
  const uint64_t cells = in_.count(2);
  if (cells == 0) return false;
  for (uint64_t c = 0; c < cells && in_.ok(); ++c) {
    const uint64_t by = in_.varint();
    if ((c == 0) != (by == 0) || by > UINT64_MAX - begin) return false;
    begin += by;
    t.cells.push_back({begin, t.versions.size()});
    const uint64_t size = in_.varint();
    for (uint64_t i = 0, n = in_.count(2); i < n; ++i) {
      Version v;
      if (!version(out, size, v)) return false;
      if (i != 0 && (v.from < t.versions.back().from || v.until < t.versions.back().until)) return false;
      t.versions.push_back(v);
    }
    sizes.push_back(size);
  }
  // A version's bytes are as long as its cell, which ends where the next one begins.
  for (size_t c = 0; c < t.cells.size(); ++c) {
    if (size_of(t, c) != sizes[c]) return false;
  }
  return in_.ok();
}

bool StoreReader::tables(Impl& out) {
  std::vector<std::shared_ptr<const SpaceTable>> tables;
  for (uint64_t i = 0, n = in_.count(3); i < n; ++i) {
    auto t = std::make_shared<SpaceTable>();
    if (!table(out, *t)) return false;
    tables.push_back(std::move(t));
  }
  for (uint64_t i = 0, n = in_.count(); i < n; ++i) {
    const uint64_t number = in_.varint();
    if (!in_.ok() || number >= tables.size()) return false;
    out.spaces.push_back(tables[number]);
  }
  return true;
}

}  // namespace

TextSections put_text(const TextStore& text) {
  const Impl& impl = StoreAccess::of(text);
  const Tables tables(impl);
  Extents extents;
  for (const SpaceTable* t : tables.all)
    for_each_version(*t, [&](const Version& v, uint64_t size) { extents.add(v.bytes, size); });
  for (const PokeRecord& p : impl.pokes) extents.add(p.bytes, uint64_t{p.old_len} + p.new_len);
  extents.join();
  TextSections out;
  put_facts(out.store, impl, extents);
  out.store.varint(tables.all.size());
  for (const SpaceTable* t : tables.all) put_table(out.store, *t, extents);
  out.store.varint(impl.spaces.size());
  for (const auto& space : impl.spaces) out.store.varint(tables.number.at(space.get()));
  out.bytes = extents.spans();
  return out;
}

std::optional<TextStore> take_text(std::span<const uint8_t> store, std::span<const uint8_t> bytes) {
  TextStore out = Builder().build();
  Impl& impl = StoreAccess::of(out);
  impl.spaces.clear();
  if (!StoreReader(store, bytes).read(impl)) return std::nullopt;
  return out;
}

}  // namespace asof::core
