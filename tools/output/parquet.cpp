#include "tools/output/parquet.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "decoder/io/zstd.h"
#include "textstore/check.h"
#include "tools/output/thrift.h"

namespace asof {
namespace {

constexpr std::string_view kMagic = "PAR1";
constexpr uint64_t kGroupRows = 122'880;     // as DuckDB has them
constexpr uint64_t kGroupBytes = 64U << 20;  // of values: wide rows make smaller groups
constexpr size_t kMostTexts = 4096;          // of a dictionary
constexpr size_t kStatisticsText = 64;       // longer minima and maxima are left out

// parquet.thrift: Type, ConvertedType, Encoding, CompressionCodec, PageType, FieldRepetitionType.
constexpr int kTypeInt64 = 2, kTypeDouble = 5, kTypeByteArray = 6;
constexpr int kUtf8 = 0;
constexpr int kPlain = 0, kRle = 3, kRleDictionary = 8;
constexpr int kZstd = 6;
constexpr int kDataPage = 0, kDictionaryPage = 2;
constexpr int kOptional = 1;

int physical(ParquetType t) {
  switch (t) {
    case ParquetType::kInt64:
      return kTypeInt64;
    case ParquetType::kDouble:
      return kTypeDouble;
    default:
      return kTypeByteArray;
  }
}

void put_fixed(std::string& out, uint64_t v, unsigned bytes) {
  for (unsigned i = 0; i < bytes; ++i) out += static_cast<char>(v >> (8 * i));
}

void put_varint(std::string& out, uint64_t v) {
  for (; v >= 0x80; v >>= 7) out += static_cast<char>(v | 0x80);
  out += static_cast<char>(v);
}

// The hybrid of runs and bit-packed groups, as runs where a value repeats eight times, else packed.
template <class At>
void put_rle(std::string& out, size_t count, unsigned width, At at) {
  for (size_t i = 0; i < count;) {
    size_t same = 1;
    while (i + same < count && at(i + same) == at(i)) ++same;
    if (same >= 8) {
      put_varint(out, same << 1);
      put_fixed(out, at(i), (width + 7) / 8);
      i += same;
      continue;
    }
    // Groups of eight up to where a run begins.
    size_t until = i;
    while (until < count) {
      size_t repeats = 1;
      while (repeats < 8 && until + repeats < count && at(until + repeats) == at(until)) ++repeats;
      if (repeats >= 8 && (until - i) % 8 == 0) break;
      until += 8 - (until - i) % 8;
    }
    const size_t groups = (until - i + 7) / 8;
    put_varint(out, groups << 1 | 1);
    uint64_t bits = 0;
    unsigned have = 0;
    for (size_t k = 0; k < groups * 8; ++k) {
      bits |= (i + k < count ? uint64_t{at(i + k)} : 0) << have;
      for (have += width; have >= 8; have -= 8, bits >>= 8) out += static_cast<char>(bits);
    }
    i = std::min(count, i + groups * 8);
  }
}

std::string packed(std::string_view body) {
  std::string out(ZSTD_compressBound(body.size()), '\0');
  const size_t n = ZSTD_compress(out.data(), out.size(), body.data(), body.size(), 3);
  ASOF_CHECK(!zstd::failed(n));
  out.resize(n);
  return out;
}

template <class T>
void widen(std::optional<T>& min, std::optional<T>& max, const T& value) {
  if (!min || value < *min) min = value;
  if (!max || *max < value) max = value;
}

std::string bytes_of(uint64_t v) {
  std::string out;
  put_fixed(out, v, 8);
  return out;
}

}  // namespace

ParquetWriter::ParquetWriter(std::vector<ParquetColumn> columns, Write write,
                             std::vector<std::pair<std::string, std::string>> metadata)
    : columns_(std::move(columns)),
      write_(std::move(write)),
      metadata_(std::move(metadata)),
      cells_(columns_.size()) {
  put(kMagic);
}

void ParquetWriter::put(std::string_view bytes) {
  write_(bytes);
  at_ += bytes.size();
}

void ParquetWriter::null(size_t column) {
  Cells& c = cells_[column];
  c.defined.push_back(false);
  ++c.statistics.nulls;
}

void ParquetWriter::integer(size_t column, int64_t value) {
  Cells& c = cells_[column];
  c.defined.push_back(true);
  put_fixed(c.plain, static_cast<uint64_t>(value), 8);
  widen(c.statistics.min_int, c.statistics.max_int, value);
  group_bytes_ += 8;
}

void ParquetWriter::real(size_t column, double value) {
  Cells& c = cells_[column];
  c.defined.push_back(true);
  put_fixed(c.plain, std::bit_cast<uint64_t>(value), 8);
  // Neither NaN nor a zero's sign may decide what a reader leaves out.
  if (value == value) {
    widen(c.statistics.min_real, c.statistics.max_real, value == 0 ? -0.0 : value);
    if (value == 0 && *c.statistics.max_real == 0) c.statistics.max_real = 0.0;
  }
  group_bytes_ += 8;
}

void ParquetWriter::text(size_t column, std::string_view value) {
  Cells& c = cells_[column];
  c.defined.push_back(true);
  put_fixed(c.plain, value.size(), 4);
  c.plain += value;
  group_bytes_ += 4 + value.size();
  std::string own(value);
  widen(c.statistics.min_text, c.statistics.max_text, own);
  if (!c.dictionary) return;
  const auto [at, is_new] = c.numbers.try_emplace(std::move(own), static_cast<uint32_t>(c.texts.size()));
  if (is_new && c.texts.size() == kMostTexts) {
    c.dictionary = false;
    return;
  }
  if (is_new) c.texts.push_back(at->first);
  c.indices.push_back(at->second);
}

void ParquetWriter::end_row() {
  if (++group_rows_ == kGroupRows || group_bytes_ >= kGroupBytes) flush_group();
}

uint64_t ParquetWriter::write_page(bool dictionary, std::string_view body, uint64_t values, bool indexed,
                                   Chunk& chunk) {
  const std::string small = packed(body);
  ThriftWriter page;
  page.integer(1, dictionary ? kDictionaryPage : kDataPage, false)
      .integer(2, static_cast<int64_t>(body.size()), false)
      .integer(3, static_cast<int64_t>(small.size()), false);
  if (dictionary) {
    page.structure(7,
                   [&] { page.integer(1, static_cast<int64_t>(values), false).integer(2, kPlain, false); });
  } else {
    page.structure(5, [&] {
      page.integer(1, static_cast<int64_t>(values), false)
          .integer(2, indexed ? kRleDictionary : kPlain, false)
          .integer(3, kRle, false)
          .integer(4, kRle, false);
    });
  }
  const std::string head = page.take();
  const uint64_t offset = at_;
  put(head);
  put(small);
  chunk.packed += head.size() + small.size();
  chunk.raw += head.size() + body.size();
  return offset;
}

ParquetWriter::Chunk ParquetWriter::write_chunk(size_t column) {
  Cells& c = cells_[column];
  Chunk chunk;
  chunk.values = c.defined.size();
  chunk.statistics = std::move(c.statistics);
  const bool is_text =
      columns_[column].type == ParquetType::kText || columns_[column].type == ParquetType::kBytes;
  chunk.dictionary = is_text && c.dictionary && !c.texts.empty() && c.texts.size() < c.indices.size();
  if (chunk.dictionary) {
    std::string texts;
    for (const std::string& t : c.texts) {
      put_fixed(texts, t.size(), 4);
      texts += t;
    }
    chunk.dictionary_offset = write_page(true, texts, c.texts.size(), false, chunk);
  }
  // Definition levels with their size in front, then the values that are there.
  std::string levels;
  put_rle(levels, c.defined.size(), 1, [&](size_t i) { return uint32_t{c.defined[i]}; });
  std::string body;
  put_fixed(body, levels.size(), 4);
  body += levels;
  if (chunk.dictionary) {
    const auto width = static_cast<unsigned>(std::bit_width(c.texts.size() - 1));
    body += static_cast<char>(width);
    put_rle(body, c.indices.size(), width, [&](size_t i) { return c.indices[i]; });
  } else {
    body += c.plain;
  }
  chunk.offset = write_page(false, body, c.defined.size(), chunk.dictionary, chunk);
  c = Cells();
  return chunk;
}

void ParquetWriter::flush_group() {
  if (group_rows_ == 0) return;
  Group group;
  group.offset = at_;
  group.rows = group_rows_;
  for (size_t i = 0; i < columns_.size(); ++i) {
    group.chunks.push_back(write_chunk(i));
    group.packed += group.chunks.back().packed;
    group.raw += group.chunks.back().raw;
  }
  groups_.push_back(std::move(group));
  total_rows_ += group_rows_;
  group_rows_ = group_bytes_ = 0;
}

std::string ParquetWriter::footer() const {
  ThriftWriter f;
  const auto statistics = [&](const Statistics& s, ParquetType type) {
    std::optional<std::string> min, max;
    if (s.min_int) {
      min = bytes_of(static_cast<uint64_t>(*s.min_int));
      max = bytes_of(static_cast<uint64_t>(*s.max_int));
    } else if (s.min_real) {
      min = bytes_of(std::bit_cast<uint64_t>(*s.min_real));
      max = bytes_of(std::bit_cast<uint64_t>(*s.max_real));
    } else if (s.min_text && type == ParquetType::kText && s.min_text->size() <= kStatisticsText &&
               s.max_text->size() <= kStatisticsText) {
      min = s.min_text;
      max = s.max_text;
    }
    f.integer(3, static_cast<int64_t>(s.nulls));
    if (max) f.text(5, *max);
    if (min) f.text(6, *min);
  };
  f.integer(1, 1, false);
  f.structs(2, columns_.size() + 1, [&](size_t i) {
    if (i == 0) {
      f.text(4, "schema").integer(5, static_cast<int64_t>(columns_.size()), false);
      return;
    }
    const ParquetColumn& c = columns_[i - 1];
    f.integer(1, physical(c.type), false).integer(3, kOptional, false).text(4, c.name);
    if (c.type == ParquetType::kText) {
      f.integer(6, kUtf8, false);
      f.structure(10, [&] { f.structure(1, [] {}); });  // LogicalType: STRING
    }
  });
  f.integer(3, static_cast<int64_t>(total_rows_));
  f.structs(4, groups_.size(), [&](size_t g) {
    const Group& group = groups_[g];
    f.structs(1, columns_.size(), [&](size_t i) {
      const Chunk& c = group.chunks[i];
      f.integer(2, static_cast<int64_t>(c.dictionary ? c.dictionary_offset : c.offset));
      f.structure(3, [&] {
        f.integer(1, physical(columns_[i].type), false);
        std::vector<int32_t> encodings = {kRle, kPlain};
        if (c.dictionary) encodings.push_back(kRleDictionary);
        f.integers(2, encodings);
        f.texts(3, {columns_[i].name});
        f.integer(4, kZstd, false);
        f.integer(5, static_cast<int64_t>(c.values));
        f.integer(6, static_cast<int64_t>(c.raw));
        f.integer(7, static_cast<int64_t>(c.packed));
        f.integer(9, static_cast<int64_t>(c.offset));
        if (c.dictionary) f.integer(11, static_cast<int64_t>(c.dictionary_offset));
        f.structure(12, [&] { statistics(c.statistics, columns_[i].type); });
      });
    });
    f.integer(2, static_cast<int64_t>(group.raw));
    f.integer(3, static_cast<int64_t>(group.rows));
    f.integer(5, static_cast<int64_t>(group.offset));
    f.integer(6, static_cast<int64_t>(group.packed));
  });
  if (!metadata_.empty()) {
    f.structs(5, metadata_.size(),
              [&](size_t i) { f.text(1, metadata_[i].first).text(2, metadata_[i].second); });
  }
  f.text(6, "asof");
  // Minima and maxima are by the order of the column's type.
  f.structs(7, columns_.size(), [&](size_t) { f.structure(1, [] {}); });
  return f.take();
}

void ParquetWriter::finish() {
  flush_group();
  const std::string text = footer();
  put(text);
  std::string end;
  put_fixed(end, text.size(), 4);
  end += kMagic;
  put(end);
}

}  // namespace asof
