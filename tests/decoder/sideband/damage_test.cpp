// Damaged and cut recordings against the same ones whole: nothing that other bytes ran is called certain.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <compare>
#include <cstring>
#include <fstream>
#include <iterator>
#include <tuple>

#include "decoder/pipeline/pipeline.h"
#include "tests/decoder/capture_test_util.h"
#include "tests/support/effort.h"
#include "tests/support/sim_random.h"

namespace asof::test {
namespace {

using Bytes = std::vector<uint8_t>;

// An instruction that ran.
struct Instruction {
  std::tuple<int32_t, Time, Addr> where;  // CPU, time, address
  std::array<uint8_t, 16> bytes{};        // and its size
  auto operator<=>(const Instruction&) const = default;
};

// What ran, of the kernel: sorted, each once.
class Executed final : public ChunkConsumer {
 public:
  explicit Executed(bool sure) : sure_(sure) {}
  void deliver(Chunk& chunk, const Stream& stream, Prepared* /*prepared*/) override {
    for (const Step& s : chunk.steps) {
      if (!is_kernel_address(s.block->ip)) continue;
      if (sure_ && s.confidence > Confidence::kProved) continue;
      const uint8_t* p = s.block->bytes;
      Addr ip = s.block->ip;
      for (uint32_t i = 0; i < s.count; ++i) {
        const uint8_t size = s.block->lengths[i];
        Instruction& here = all.emplace_back();
        here.where = {stream.cpu, s.time, ip};
        std::copy_n(p, std::min<size_t>(size, 15), here.bytes.begin());
        here.bytes[15] = size;
        p += size;
        ip += size;
      }
    }
  }
  std::vector<Instruction> sorted() {
    std::ranges::sort(all);
    const auto twice = std::ranges::unique(all);
    all.erase(twice.begin(), twice.end());
    return std::move(all);
  }

 private:
  std::vector<Instruction> all;
  bool sure_;
};

struct RecordAt {
  uint32_t type = 0;
  size_t begin = 0, end = 0;
};

class DamagedRecording : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string name = GetParam();
    const std::string from = ASOF_TEST_DATA "/" + name;
    folder_ = from;
    if (name.ends_with(".tar.xz")) {
      folder_ = (dir_ / "whole").string();
      std::filesystem::create_directory(folder_);
      ASSERT_EQ(std::system(fmt::format("tar -C '{}' -xJf '{}'", folder_, from).c_str()), 0);
    }
    std::ifstream in(folder_ + "/perf.data/data", std::ios::binary);
    data_.assign(std::istreambuf_iterator<char>(in), {});
    ASSERT_GT(data_.size(), 104U);
    find_records();
    whole_ = execute(data_, false);
    ASSERT_FALSE(whole_.empty());
  }

  uint64_t number(size_t at, size_t size) const {
    uint64_t out = 0;
    std::memcpy(&out, data_.data() + at, size);
    return out;
  }
  void find_records() {
    const size_t begin = number(40, 8), end = begin + number(48, 8);
    for (size_t at = begin; at < end;) {
      RecordAt r{static_cast<uint32_t>(number(at, 4)), at, at + number(at + 6, 2)};
      if (r.type == 71) r.end += number(at + 8, 8);
      records_.push_back(r);
      at = r.end;
    }
  }
  // What ran by this file, with the other files of the capture.
  std::vector<Instruction> execute(const Bytes& data, bool sure) {
    const auto folder = dir_ / "damaged";
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/perf.data")) {
      if (entry.path().filename() != "data")
        std::filesystem::create_symlink(std::filesystem::absolute(entry.path()),
                                        folder / entry.path().filename());
    }
    std::ofstream(folder / "data", std::ios::binary)
        .write(reinterpret_cast<const char*>(data.data()), static_cast<std::streamsize>(data.size()));
    CaptureOptions o;
    o.host_files = false;
    o.symfs = folder_ + "/symfs";
    const auto capture = open_capture(folder.string(), o);
    Executed out(sure);
    if (capture) {
      EXPECT_TRUE(run_pipeline(*capture, {}, ChunkOrder::kByStream, out));
    }
    return out.sorted();
  }
  // Of what is called certain or proved: how many instructions; other bytes than in the whole recording are a failure.
  size_t check(const Bytes& data, const std::string& what) {
    const auto sure = execute(data, true);
    auto real = whole_.begin();
    for (const Instruction& i : sure) {
      real = std::find_if(real, whole_.end(), [&](const Instruction& r) { return r.where >= i.where; });
      if (real == whole_.end()) break;
      if (real->where != i.where) continue;
      auto same = real;
      while (same != whole_.end() && same->where == i.where && same->bytes != i.bytes) ++same;
      if (same != whole_.end() && same->where == i.where) continue;
      ADD_FAILURE() << what << ": cpu " << std::get<0>(i.where) << " at " << std::get<1>(i.where)
                    << fmt::format(" {:#x}", std::get<2>(i.where));
      return 0;
    }
    return sure.size();
  }
  // As perf writes it to a pipe: attributes and features are records.
  Bytes as_pipe(std::vector<size_t>& ends) const {
    Bytes out(data_.begin(), data_.begin() + 8);
    const auto put = [&](uint64_t n, size_t size) {
      for (size_t i = 0; i < size; ++i) out.push_back(static_cast<uint8_t>(n >> (8 * i)));
    };
    const auto copy = [&](size_t at, size_t size) {
      out.insert(out.end(), data_.begin() + static_cast<std::ptrdiff_t>(at),
                 data_.begin() + static_cast<std::ptrdiff_t>(at + size));
    };
    put(16, 8);
    const size_t entry = number(16, 8), attrs = number(24, 8), data = number(40, 8);
    for (size_t at = attrs; at < attrs + number(32, 8); at += entry) {
      const size_t ids = number(at + entry - 16, 8), size = number(at + entry - 8, 8);
      put(64, 4), put(0, 2), put(8 + entry - 16 + size, 2);
      copy(at, entry - 16);
      copy(ids, size);
    }
    size_t table = data + number(48, 8);
    for (unsigned bit = 0; bit < 256; ++bit) {
      if (((number(72 + 8 * (bit / 64), 8) >> (bit % 64)) & 1) == 0) continue;
      const size_t at = number(table, 8), size = number(table + 8, 8);
      table += 16;
      const size_t padded = (size + 7) / 8 * 8;
      if (bit <= 2 || padded > 60'000) continue;
      put(80, 4), put(0, 2), put(16 + padded, 2), put(bit, 8);
      copy(at, size);
      out.resize(out.size() + padded - size);
    }
    for (const RecordAt& r : records_) {
      copy(r.begin, r.end - r.begin);
      ends.push_back(out.size());
    }
    return out;
  }

  const TempDir dir_;
  std::string folder_;
  Bytes data_;
  std::vector<RecordAt> records_;
  std::vector<Instruction> whole_;
};

// At the end of each record of a type that matters, and in the middle of some.
TEST_P(DamagedRecording, PipeThatIsCut) {
  std::vector<size_t> ends;
  const Bytes pipe = as_pipe(ends);
  const size_t whole = check(pipe, "whole");
  EXPECT_GT(whole, 0U);
  SimRandom random(1);
  size_t least = whole;
  for (size_t i = 0; i < ends.size(); ++i) {
    if (records_[i].type != 71 && !random.chance(kSanitized || records_.size() > 400 ? 1 : 10)) continue;
    if (records_[i].type == 68) continue;  // looks as if it were complete
    Bytes cut(pipe.begin(), pipe.begin() + static_cast<std::ptrdiff_t>(ends[i]));
    least = std::min(least, check(cut, fmt::format("cut behind record {} (type {})", i, records_[i].type)));
    if (HasFailure()) return;
  }
  EXPECT_LT(least, whole);
}

// A record whose size is wrong takes others with it; one with wrong lengths is left out.
TEST_P(DamagedRecording, RecordsOfChanges) {
  SimRandom random(2);
  // Of many, some.
  size_t done = 0, seen = 0;
  const auto of_text = [](const RecordAt& r) { return r.type == 20 || r.type == 17 || r.type == 18; };
  const auto every = std::max<size_t>(1, static_cast<size_t>(std::ranges::count_if(records_, of_text)) / 4);
  for (const RecordAt& r : records_) {
    if (!of_text(r) || seen++ % every != random.below(every)) continue;
    ++done;
    for (const bool size : {true, false}) {
      if (kSanitized && size != (done % 2 == 0)) continue;
      Bytes damaged = data_;
      if (size) {
        damaged[r.begin + 6] = damaged[r.begin + 7] = 0;
      } else {
        damaged[r.begin + 16] = damaged[r.begin + 17] = 0xff;  // lengths of a poke, or the length of a symbol
      }
      check(damaged,
            fmt::format("{} of the record at {:#x} (type {})", size ? "size" : "lengths", r.begin, r.type));
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(done, 1U);
}

// One change that is lost puts all later text in doubt. What ran is found nevertheless.
TEST_P(DamagedRecording, OneLostChangeCostsNoTrace) {
  const auto first = std::ranges::find(records_, 20U, &RecordAt::type);
  ASSERT_NE(first, records_.end());
  Bytes damaged = data_;
  damaged[first->begin + 16] = damaged[first->begin + 17] = 0xff;
  const auto found = execute(damaged, false);
  std::vector<Instruction> right;
  std::ranges::set_intersection(found, whole_, std::back_inserter(right));
  EXPECT_GT(right.size(), whole_.size() * 98 / 100);
  EXPECT_LT(found.size() - right.size(), whole_.size() / 20);  // the change itself
}

INSTANTIATE_TEST_SUITE_P(Captures, DamagedRecording,
                         testing::Values("demo", "board-x86/capture.tar.xz", "board-arm64/capture.tar.xz"),
                         [](const testing::TestParamInfo<const char*>& info) {
                           std::string name = info.param;
                           name = name.substr(0, name.find('/'));
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace asof::test
