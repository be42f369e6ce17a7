#include "tools/board/ete_plugin/log.h"

#include <limits>
#include <stdexcept>
#include <vector>

namespace asof::ete {
namespace {

constexpr uint64_t kUnknown =
    std::numeric_limits<uint64_t>::max();  // the element that tells of it is not made yet

void write_all(std::FILE* f, const void* bytes, size_t size) {
  if (std::fwrite(bytes, 1, size, f) != size) throw std::runtime_error("cannot write the log");
}

}  // namespace

File create_file(const std::string& path) {
  File f(std::fopen(path.c_str(), "wb"));
  if (!f) throw std::runtime_error("cannot create " + path);
  std::setvbuf(f.get(), nullptr, _IOFBF, 1 << 20);
  return f;
}

uint32_t CodeLog::add(uint64_t address, std::span<const uint32_t> words) {
  const machine::CodeHead head{address, next_, static_cast<uint32_t>(words.size())};
  const std::vector<uint8_t> sizes(words.size(), 4);
  write_all(file_.get(), &head, sizeof head);
  write_all(file_.get(), sizes.data(), sizes.size());
  write_all(file_.get(), words.data(), words.size_bytes());
  return next_++;
}

void CpuLog::put(const machine::LogRecord& r) { write_all(file_.get(), &r, sizeof r); }

void CpuLog::instruction(uint64_t address, uint32_t code, uint16_t index, uint32_t flags, uint64_t clock) {
  if (is_open_ && code == open_.code && index == open_.first + open_.count && flags == 0 &&
      address == open_.address + 4ull * open_.count) {
    ++open_.count;
    return;
  }
  if (is_open_) waiting_.push_back({open_, kUnknown});
  open_ = {address, code, index, 1, 0, flags | (address >> 63 ? 0 : uint32_t{machine::kLogUser}), clock};
  is_open_ = true;
}

void CpuLog::end(uint64_t element, uint32_t flags) {
  for (auto w = waiting_.rbegin(); w != waiting_.rend() && w->element == kUnknown; ++w) w->element = element;
  if (!is_open_) return;
  open_.flags |= flags;
  waiting_.push_back({open_, element});
  is_open_ = false;
}

void CpuLog::release(uint64_t written_elements, uint64_t output, bool lost) {
  while (!waiting_.empty() && waiting_.front().element <= written_elements) {
    machine::LogRecord r = waiting_.front().record;
    waiting_.pop_front();
    r.output = static_cast<uint32_t>(output);
    if (lost) r.flags |= machine::kLogLost;
    put(r);
  }
}

void CpuLog::lose_rest(uint64_t output) {
  end(kUnknown - 1, machine::kLogNoBranch);
  release(kUnknown, output, true);
}

void CpuLog::mark(machine::Mark kind, uint64_t address, uint64_t output, uint64_t clock) {
  put({address, machine::kLogMark, static_cast<uint16_t>(kind), 0, static_cast<uint32_t>(output), 0, clock});
}

}  // namespace asof::ete
