// make_rows SEED FILE.parquet FILE.jsonl: random rows by ParquetWriter, and the same as JSON lines, for lake_test.mjs.
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <random>

#include "tools/output/parquet.h"

namespace {

// Values come in runs, whose lengths lie around what RLE treats differently.
class Runs {
 public:
  explicit Runs(std::mt19937_64& random) : random_(random) {}
  template <class Make>
  uint64_t next(Make make) {
    if (left_-- == 0) {
      value_ = make();
      left_ = random_() % 4 == 0 ? random_() % 2000 : random_() % 12;
    }
    return value_;
  }

 private:
  std::mt19937_64& random_;
  uint64_t left_ = 0, value_ = 0;
};

std::string in_quotes(const std::string& s) { return "\"" + s + "\""; }

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 1;
  using asof::ParquetType;
  const uint64_t seed = std::strtoull(argv[1], nullptr, 10);
  std::mt19937_64 random(seed);
  std::ofstream file(argv[2], std::ios::binary), json(argv[3]);
  asof::ParquetWriter w({{"number", ParquetType::kInt64},
                         {"real", ParquetType::kDouble},
                         {"few", ParquetType::kText},
                         {"many", ParquetType::kText},
                         {"one", ParquetType::kText},
                         {"bytes", ParquetType::kBytes},
                         {"nothing", ParquetType::kInt64}},
                        [&](std::string_view bytes) { file << bytes; }, {{"seed", argv[1]}});
  const uint64_t rows = seed == 0 ? 0 : 1 + random() % 300'000, distinct = 1 + random() % 9000;
  Runs nulls(random), few(random), many(random);
  for (uint64_t i = 0; i < rows; ++i) {
    const uint64_t null = nulls.next([&] { return random() % 64; });
    const auto number = static_cast<int64_t>(random() >> random() % 64) * (random() % 2 == 0 ? 1 : -1);
    const double real =
        std::ldexp(static_cast<double>(random() % 1000) - 500, static_cast<int>(random() % 40) - 20);
    const std::string word = fmt::format("w{}", few.next([&] { return random() % 5; }));
    const std::string name = fmt::format("n{}", many.next([&] { return random() % distinct; }));
    const std::string bytes(random() % 5, static_cast<char>(random() % 256));
    std::string line;
    const auto cell = [&](size_t column, const char* name_of, const std::string& value, auto put) {
      const bool is_null = (null >> column & 1) != 0;
      if (is_null)
        w.null(column);
      else
        put();
      line += fmt::format("{}\"{}\":{}", line.empty() ? "{" : ",", name_of, is_null ? "null" : value);
    };
    cell(0, "number", in_quotes(std::to_string(number)), [&] { w.integer(0, number); });
    cell(1, "real", fmt::format("{}", real), [&] { w.real(1, real); });
    cell(2, "few", in_quotes(word), [&] { w.text(2, word); });
    cell(3, "many", in_quotes(name), [&] { w.text(3, name); });
    w.text(4, "always");
    std::string hex;
    for (const char c : bytes) hex += fmt::format("{:02x}", static_cast<uint8_t>(c));
    cell(5, "bytes", in_quotes(hex), [&] { w.text(5, bytes); });
    w.null(6);
    w.end_row();
    json << line << ",\"one\":\"always\",\"nothing\":null}\n";
  }
  w.finish();
  return 0;
}
