#include "textstore/text_store.h"

#include <algorithm>
#include <cstring>

#include "textstore/text_store_impl.h"

namespace asof {

TextStore::TextStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TextStore::TextStore(TextStore&&) noexcept = default;
TextStore& TextStore::operator=(TextStore&&) noexcept = default;
TextStore::~TextStore() = default;

Cell TextStore::cell(Space space, Addr a) const {
  if (space >= impl_->spaces.size()) return {{0, UINT64_MAX}, {}};
  const SpaceTable& table = *impl_->spaces[space];
  return table.at(table.find(a));
}

size_t TextStore::read(Space space, Addr a, Time t, std::span<uint8_t> out) const {
  size_t done = 0;
  while (done < out.size() && a != UINT64_MAX) {
    const Cell c = cell(space, a);
    const Version* one = nullptr;
    size_t agreed = std::min<uint64_t>(c.range.end - a, out.size() - done);
    const size_t wanted = agreed;
    for (const Version& v : c.possible_in({t, t})) {
      if (v.bytes == nullptr) return done;
      if (one == nullptr) one = &v;
      const uint8_t *x = one->bytes + (a - c.range.begin), *y = v.bytes + (a - c.range.begin);
      agreed = static_cast<size_t>(std::mismatch(x, x + agreed, y).first - x);
    }
    if (one == nullptr) return done;
    std::memcpy(out.data() + done, one->bytes + (a - c.range.begin), agreed);
    done += agreed;
    a += agreed;
    if (agreed < wanted) break;
  }
  return done;
}

std::vector<Cell> TextStore::cells(Space space, AddrRange range) const {
  std::vector<Cell> cells;
  if (range.empty()) return cells;
  if (space >= impl_->spaces.size()) {
    cells.push_back(cell(space, range.begin));
    return cells;
  }
  const SpaceTable& table = *impl_->spaces[space];
  for (size_t i = table.find(range.begin); i < table.cells.size() && table.cells[i].begin < range.end; ++i) {
    cells.push_back(table.at(i));
  }
  return cells;
}

std::span<const PokeRecord> TextStore::pokes() const { return impl_->pokes; }

const Origin& TextStore::origin(OriginRef ref) const {
  if (is_poke(ref)) return impl_->poke_origin;
  return impl_->origins[ref < impl_->origins.size() ? ref : kNoOrigin];
}

size_t TextStore::origin_count() const { return impl_->origins.size() - 1; }

std::span<const LostRecords> TextStore::losses() const { return impl_->losses; }

Time TextStore::unsure_from() const { return impl_->unsure_from; }

std::span<const TextNotice> TextStore::notices() const { return impl_->notices; }

size_t TextStore::space_count() const { return impl_->spaces.size(); }

}  // namespace asof
