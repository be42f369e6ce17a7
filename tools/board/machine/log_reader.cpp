#include "tools/board/machine/log_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <fstream>
#include <numeric>
#include <stdexcept>

namespace asof::machine {
namespace {

static_assert(std::endian::native == std::endian::little, "records are read as they are in the file");
constexpr size_t kRecordsAtOnce = 1 << 15;

}  // namespace

CodeTable::CodeTable(std::vector<uint8_t> file) : file_(std::move(file)) {
  const std::span<const uint8_t> all(file_);
  for (size_t at = 0; at < all.size();) {
    CodeHead head;
    if (all.size() - at < sizeof head) throw std::runtime_error("code: ends within the head of a block");
    std::memcpy(&head, all.data() + at, sizeof head);
    at += sizeof head;
    if (head.number < blocks_.size())
      throw std::runtime_error(fmt::format("code: block {} does not come in order", head.number));
    if (head.instructions > all.size() - at)
      throw std::runtime_error(fmt::format("code: ends within block {}", head.number));
    const auto lengths = all.subspan(at, head.instructions);
    at += head.instructions;
    const size_t bytes = std::accumulate(lengths.begin(), lengths.end(), size_t{0});
    if (bytes > all.size() - at)
      throw std::runtime_error(fmt::format("code: ends within block {}", head.number));
    blocks_.resize(head.number + size_t{1});
    blocks_[head.number] = {head.address, lengths, all.subspan(at, bytes)};
    at += bytes;
  }
}

Executed executed(const CodeTable& table, const LogRecord& record) {
  const CodeBlock* block = table.find(record.code);
  if (block == nullptr || size_t{record.first} + record.count > block->lengths.size())
    throw std::runtime_error(
        fmt::format("a record names instructions {}..{} of block {}, which are not in code", record.first,
                    record.first + record.count, record.code));
  const auto before = block->lengths.first(record.first);
  const auto lengths = block->lengths.subspan(record.first, record.count);
  const size_t begin = std::accumulate(before.begin(), before.end(), size_t{0});
  const size_t size = std::accumulate(lengths.begin(), lengths.end(), size_t{0});
  return {record.address, lengths, block->bytes.subspan(begin, size)};
}

CpuLog::CpuLog(const std::filesystem::path& file)
    : file_(std::fopen(file.c_str(), "rbe")), buffer_(kRecordsAtOnce) {
  if (!file_)
    throw std::runtime_error(fmt::format("cannot open {}: {}", file.string(), std::strerror(errno)));
}

bool CpuLog::next(LogRecord& record, uint64_t& position) {
  if (at_ == filled_) {
    filled_ = std::fread(buffer_.data(), sizeof(LogRecord), buffer_.size(), file_.get());
    at_ = 0;
    if (filled_ == 0) return false;
  }
  record = buffer_[at_++];
  // Records wait for packets, marks do not: so a position may be a little before the one that was read last.
  position_ += static_cast<uint64_t>(
      static_cast<int64_t>(static_cast<int32_t>(record.output - static_cast<uint32_t>(position_))));
  position = position_;
  return true;
}

std::vector<int> logged_cpus(const std::filesystem::path& folder) {
  std::vector<int> cpus;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("cpu") || !name.ends_with(".log")) continue;
    int cpu = -1;
    const char* end = name.data() + name.size() - 4;
    const auto r = std::from_chars(name.data() + 3, end, cpu);
    if (r.ec == std::errc() && r.ptr == end && cpu >= 0) cpus.push_back(cpu);
  }
  std::ranges::sort(cpus);
  return cpus;
}

std::filesystem::path log_file(const std::filesystem::path& folder, int cpu) {
  return folder / fmt::format("cpu{}.log", cpu);
}

std::vector<uint8_t> read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error(fmt::format("cannot open {}: {}", path.string(), std::strerror(errno)));
  std::vector<uint8_t> bytes(std::filesystem::file_size(path));
  in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!in) throw std::runtime_error(fmt::format("cannot read {}", path.string()));
  return bytes;
}

}  // namespace asof::machine
