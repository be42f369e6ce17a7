#include "tools/record/watcher.h"

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

namespace asof::record {

KernelMemory::~KernelMemory() {
  if (fd_ >= 0) close(fd_);
}

std::string KernelMemory::open(const std::string& path) {
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ < 0) {
    const int error = errno;
    if (error == ENOENT) return path + " is not there: the kernel was built without CONFIG_PROC_KCORE";
    if (error == EACCES || error == EPERM)
      return path + ": no permission (root, CAP_SYS_RAWIO; a locked down kernel refuses)";
    return path + ": " + std::strerror(error);
  }
  const std::string reason = load_segments();
  return reason.empty() ? reason : path + ": " + reason;
}

std::string KernelMemory::load_segments() {
  constexpr unsigned kMostSegments = 4096;
  Elf64_Ehdr header;
  if (pread(fd_, &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header)) {
    return errno == EPERM ? "no permission to read it (a locked down kernel refuses)" : "it cannot be read";
  }
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_phentsize != sizeof(Elf64_Phdr) ||
      header.e_phnum > kMostSegments)
    return "it is no ELF core of 64 bits";
  segments_.clear();
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr p;
    const auto at = static_cast<off_t>(header.e_phoff + i * sizeof p);
    if (pread(fd_, &p, sizeof p, at) != static_cast<ssize_t>(sizeof p)) return "its headers cannot be read";
    if (p.p_type == PT_LOAD) segments_.push_back({p.p_vaddr, p.p_memsz, p.p_offset});
  }
  return segments_.empty() ? "it has no segments" : "";
}

bool KernelMemory::read(uint64_t addr, uint8_t* out, size_t size) const {
  for (const Segment& s : segments_) {
    if (addr < s.addr || addr - s.addr > s.size || s.size - (addr - s.addr) < size) continue;
    size_t done = 0;
    while (done < size) {
      const ssize_t n =
          pread(fd_, out + done, size - done, static_cast<off_t>(s.offset + (addr - s.addr) + done));
      if (n <= 0) return false;
      done += static_cast<size_t>(n);
    }
    return true;
  }
  return false;
}

std::vector<ModuleRange> read_modules(const std::string& path) {
  constexpr uint64_t kLongestModule = 64U << 20U;
  std::vector<ModuleRange> out;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    ModuleRange m;
    std::string uses, by, state, address;
    words >> m.name >> m.size >> uses >> by >> state >> address;
    m.addr = std::strtoull(address.c_str(), nullptr, 16);
    if (state == "Live" && m.addr != 0 && m.size != 0 && m.size <= kLongestModule) out.push_back(m);
  }
  return out;
}

// The content of a range ends: with its own record, or because something else is there now.
void Watcher::end_of(uint64_t addr, uint64_t len) {
  const uint64_t most = UINT64_MAX - addr;
  const uint64_t end = addr + std::min(std::max<uint64_t>(len, 1), most);
  counts_.gone += std::erase_if(
      pending_, [&](const auto& p) { return addr < p.second.addr + p.second.len && p.second.addr < end; });
  std::erase_if(rewritten_, [&](const auto& p) {
    return addr < p.second.symbol.addr + p.second.symbol.len && p.second.symbol.addr < end;
  });
}

void Watcher::take(const std::vector<SideRecord>& records) {
  for (const SideRecord& r : records) {
    last_time_ = std::max(last_time_, r.time);
    if (r.kind == SideRecord::Kind::kLost) counts_.lost += r.lost;
    if (r.kind == SideRecord::Kind::kTextPoke) poked_ = true;
    if (r.kind != SideRecord::Kind::kKsymbol) continue;
    end_of(r.addr, r.len);
    if (r.unregister) continue;
    ++counts_.symbols;
    if (r.len == 0 || r.len > kLongest) continue;
    pending_.emplace(r.addr, r);
    const bool program = r.type != PERF_RECORD_KSYMBOL_TYPE_BPF || r.name.starts_with("bpf_prog_");
    if (!program) rewritten_[r.addr] = {r, {}};
  }
}

bool Watcher::step() {
  std::vector<SideRecord> records;
  drain_(records);
  take(records);
  if (std::exchange(poked_, false)) {
    for (const auto& [addr, r] : rewritten_) pending_.emplace(addr, r.symbol);
  }
  while (!pending_.empty()) {
    const SideRecord next = pending_.begin()->second;
    if (!copy(next)) return false;
  }
  return std::fflush(out_) == 0;
}

bool Watcher::copy(const SideRecord& symbol) {
  std::vector<uint8_t> bytes(symbol.len);
  const bool read = memory_.read(symbol.addr, bytes.data(), bytes.size());
  const std::optional<uint64_t> now = now_();
  // Was it still the same one when the last byte was read?
  std::vector<SideRecord> later;
  drain_(later);
  take(later);
  const auto still = pending_.find(symbol.addr);
  if (still == pending_.end() || still->second.time != symbol.time) return true;
  pending_.erase(still);
  if (!read) {
    ++counts_.unreadable;
    return true;
  }
  if (const auto known = rewritten_.find(symbol.addr); known != rewritten_.end()) {
    if (known->second.bytes == bytes) return true;
    known->second.bytes = bytes;
  }
  ++counts_.copied;
  last_time_ = std::max(last_time_, symbol.time);
  return write(now.value_or(last_time_), symbol.addr, symbol.type, bytes);
}

bool Watcher::look_at_modules(const std::string& path) {
  const std::vector<ModuleRange> list = read_modules(path);
  const std::set<ModuleRange> there(list.begin(), list.end());
  if (!modules_) {
    modules_ = there;
    return true;
  }
  for (const ModuleRange& m : there) {
    if (modules_->contains(m)) continue;
    std::vector<uint8_t> bytes(m.size);
    const std::optional<uint64_t> now = now_();
    if (!now || !memory_.read(m.addr, bytes.data(), bytes.size())) {
      ++counts_.unreadable;
      continue;
    }
    ++counts_.modules;
    if (!write(*now, m.addr, kModule, bytes)) return false;
  }
  modules_ = there;
  return std::fflush(out_) == 0;
}

bool Watcher::write(uint64_t time, uint64_t addr, uint32_t type, const std::vector<uint8_t>& bytes) {
  if (written_ + bytes.size() > kMostBytes) return false;
  written_ += bytes.size();
  const auto length = static_cast<uint32_t>(bytes.size());
  const uint32_t type_word = type | kPerfTime;
  return std::fwrite(&time, sizeof time, 1, out_) == 1 && std::fwrite(&addr, sizeof addr, 1, out_) == 1 &&
         std::fwrite(&length, sizeof length, 1, out_) == 1 &&
         std::fwrite(&type_word, sizeof type_word, 1, out_) == 1 &&
         std::fwrite(bytes.data(), 1, bytes.size(), out_) == bytes.size();
}

}  // namespace asof::record
