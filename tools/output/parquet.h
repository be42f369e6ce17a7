// ParquetWriter: rows as an Apache Parquet file (github.com/apache/parquet-format, version 2.9): row groups of data pages
// in PLAIN encoding, dictionaries for text that repeats, zstd, minimum, maximum and nulls of each column chunk.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "textstore/result.h"

namespace asof {

enum class ParquetType : uint8_t { kInt64, kDouble, kText, kBytes };

struct ParquetColumn {
  std::string name;
  ParquetType type = ParquetType::kInt64;
};

class ParquetWriter {
 public:
  using Write = std::function<void(std::string_view)>;
  // `metadata`: pairs of the file's own.
  ParquetWriter(std::vector<ParquetColumn> columns, Write write,
                std::vector<std::pair<std::string, std::string>> metadata = {});

  // The cells of a row, in the order of the columns; each of its column's type.
  void null(size_t column);
  void integer(size_t column, int64_t value);
  void real(size_t column, double value);
  void text(size_t column, std::string_view value);  // kText, which must be UTF-8, and kBytes
  void end_row();
  // The last row group and the footer.
  void finish();

  uint64_t rows() const { return total_rows_ + group_rows_; }

 private:
  struct Statistics {
    uint64_t nulls = 0;
    std::optional<int64_t> min_int, max_int;
    std::optional<double> min_real, max_real;
    std::optional<std::string> min_text, max_text;
  };
  // Of one column, in this row group.
  struct Cells {
    std::vector<bool> defined;
    std::string plain;                                  // values side by side; of text also their size
    std::unordered_map<std::string, uint32_t> numbers;  // of texts
    std::vector<std::string> texts;                     // distinct ones, while there are few
    std::vector<uint32_t> indices;                      // into them
    bool dictionary = true;
    Statistics statistics;
  };
  struct Chunk {
    uint64_t offset = 0, dictionary_offset = 0, packed = 0, raw = 0, values = 0;
    bool dictionary = false;
    Statistics statistics;
  };
  struct Group {
    std::vector<Chunk> chunks;
    uint64_t rows = 0, packed = 0, raw = 0, offset = 0;
  };
  void put(std::string_view bytes);
  void flush_group();
  Chunk write_chunk(size_t column);
  uint64_t write_page(bool dictionary, std::string_view body, uint64_t values, bool indexed, Chunk& chunk);
  std::string footer() const;

  const std::vector<ParquetColumn> columns_;
  Write write_;
  const std::vector<std::pair<std::string, std::string>> metadata_;
  std::vector<Cells> cells_;
  std::vector<Group> groups_;
  uint64_t at_ = 0, group_rows_ = 0, group_bytes_ = 0, total_rows_ = 0;
};

}  // namespace asof
