// The smallest perf.data files, byte by byte, for the reader's own tests: written from the description of the
// format alone, so that neither the reader nor the writer of tests/support confirms itself.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "decoder/perf/perf_data.h"
#include "decoder/perf/records.h"
#include "tests/support/bytes.h"

namespace asof::test {

using Bytes = std::vector<uint8_t>;

// A file with this content for the lifetime of the object. It is kept in memory, because thousands of damaged
// ones are tried.
class TempFile {
 public:
  explicit TempFile(const Bytes& content) : fd_(::memfd_create("asof-test", MFD_CLOEXEC)) {
    EXPECT_GE(fd_, 0);
    path_ = "/proc/self/fd/" + std::to_string(fd_);
    rewrite(content);
  }
  ~TempFile() { ::close(fd_); }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  void rewrite(const Bytes& content) const {
    EXPECT_EQ(::ftruncate(fd_, 0), 0);
    EXPECT_EQ(::pwrite(fd_, content.data(), content.size(), 0), static_cast<ssize_t>(content.size()));
  }
  const std::string& path() const { return path_; }

 private:
  int fd_;
  std::string path_;
};

// IDENTIFIER | TID | TIME | CPU: what perf record uses for Intel PT.
inline constexpr uint64_t kUsualSampleType = 0x10086;
inline constexpr uint64_t kIdAll = 1ULL << 18;

// The trailer of kUsualSampleType.
struct Tail {
  uint64_t time = 0;
  uint32_t cpu = 0;
  uint32_t pid = 0, tid = 0;
  uint64_t id = 0;
};

class PerfBytes {
 public:
  explicit PerfBytes(bool big_endian = false) : big_(big_endian), data_(big_endian) {}

  ByteSink sink() const { return ByteSink(big_); }

  struct Attr {
    uint32_t type = 1;
    uint64_t config = 9;
    uint64_t sample_type = kUsualSampleType;
    uint64_t flags = kIdAll;
    std::vector<uint64_t> ids{};
    uint32_t size = 128;
    uint64_t read_format = 0, branch_sample_type = 0, regs_user = 0, regs_intr = 0;
  };
  PerfBytes& attr(const Attr& a) {
    attrs_.push_back(a);
    return *this;
  }
  PerfBytes& attr() { return attr(Attr{}); }

  Bytes attr_bytes(const Attr& a) const {
    ByteSink s = sink();
    s.u32(a.type);
    s.u32(a.size);
    s.u64(a.config);
    s.u64(1);  // sample_period
    s.u64(a.sample_type);
    s.u64(a.read_format);
    for (int i = 0; i < 8; ++i) s.u8(flag_byte(static_cast<uint8_t>(a.flags >> (8 * i))));
    s.zeros(16);  // wakeup, bp_type, config1
    s.u64(0x22);  // config2
    s.u64(a.branch_sample_type);
    s.u64(a.regs_user);
    s.u32(0);
    s.u32(7);  // clockid
    s.u64(a.regs_intr);
    s.zeros(8);   // aux_watermark, sample_max_stack
    s.u32(4096);  // aux_sample_size
    Bytes bytes = std::move(s).take();
    bytes.resize(a.size);
    return bytes;
  }

  using Body = std::function<void(ByteSink&)>;
  Bytes record_bytes(uint32_t type, uint16_t misc, const Body& body) const {
    ByteSink inner = sink();
    body(inner);
    ByteSink s = sink();
    s.u32(type);
    s.u16(misc);
    s.u16(static_cast<uint16_t>(8 + inner.size()));
    s.raw(inner.bytes());
    return std::move(s).take();
  }
  PerfBytes& record(uint32_t type, uint16_t misc, const Body& body) {
    return raw(record_bytes(type, misc, body));
  }
  PerfBytes& record(uint32_t type, uint16_t misc, const Tail& tail, const Body& body) {
    return raw(record_bytes(type, misc, [&](ByteSink& s) {
      body(s);
      s.align(8);
      put_tail(s, tail);
    }));
  }
  static void put_tail(ByteSink& s, const Tail& tail) {
    s.u32(tail.pid);
    s.u32(tail.tid);
    s.u64(tail.time);
    s.u32(tail.cpu);
    s.u32(0);
    s.u64(tail.id);
  }
  PerfBytes& raw(const Bytes& bytes) {
    data_.raw(bytes);
    return *this;
  }
  PerfBytes& finished_round() {
    return record(68, 0, [](ByteSink&) {});
  }
  PerfBytes& auxtrace(uint32_t idx, int32_t cpu, int32_t tid, uint64_t offset, const Bytes& payload,
                      uint64_t reference = 1) {
    record(71, 0, [&](ByteSink& s) {
      s.u64((payload.size() + 7) / 8 * 8);
      s.u64(offset);
      s.u64(reference);
      s.u32(idx);
      s.u32(static_cast<uint32_t>(tid));
      s.u32(static_cast<uint32_t>(cpu));
      s.u32(0);
    });
    Bytes padded = payload;
    padded.resize((payload.size() + 7) / 8 * 8);
    return raw(padded);
  }
  PerfBytes& aux(uint64_t offset, uint64_t size, uint64_t flags, const Tail& tail) {
    return record(11, 0, tail, [&](ByteSink& s) {
      s.u64(offset);
      s.u64(size);
      s.u64(flags);
    });
  }
  PerfBytes& comm(const std::string& name, const Tail& tail) {
    return record(3, 0, tail, [&](ByteSink& s) {
      s.u32(tail.pid);
      s.u32(tail.tid);
      s.c_string(name, 8);
    });
  }
  PerfBytes& intel_pt_info(uint64_t snapshot, uint64_t per_cpu) {
    return record(70, 0, [&](ByteSink& s) {
      s.u32(1);
      s.u32(0);
      const uint64_t priv[] = {8, 0, 1, 0, 1, 0x400, 0x800, 3, snapshot, per_cpu};
      for (const uint64_t word : priv) s.u64(word);
    });
  }

  PerfBytes& feature(int bit, const Body& body) {
    ByteSink s = sink();
    body(s);
    features_[bit] = std::move(s).take();
    return *this;
  }
  static void put_string(ByteSink& s, std::string_view text) {
    s.u32(64);
    s.c_string(text, 64);
  }

  uint64_t data_size() const { return data_.size(); }
  const Bytes& data() const { return data_.bytes(); }

  struct Layout {
    uint64_t header_size = 104;
    bool data_size_zero = false;
    Bytes trailing{};
  };
  Bytes file(const Layout& layout) const {
    ByteSink out = sink();
    put_magic(out);
    const size_t entry = attrs_.empty() ? 144 : attrs_.front().size + 16U;
    size_t ids_at = layout.header_size;
    size_t ids_size = 0;
    for (const Attr& a : attrs_) ids_size += 8 * a.ids.size();
    const size_t attrs_at = ids_at + ids_size, data_at = attrs_at + entry * attrs_.size();
    out.u64(layout.header_size);
    out.u64(entry);
    out.u64(attrs_at);
    out.u64(entry * attrs_.size());
    out.u64(data_at);
    out.u64(layout.data_size_zero ? 0 : data_.size());
    out.zeros(16);
    if (layout.header_size >= 104) {
      std::array<uint64_t, 4> bits{};
      for (const auto& [bit, body] : features_) bits[static_cast<size_t>(bit) / 64] |= 1ULL << (bit % 64);
      for (const uint64_t word : bits) out.u64(word);
    }
    for (const Attr& a : attrs_) {
      for (const uint64_t id : a.ids) out.u64(id);
    }
    for (const Attr& a : attrs_) {
      out.raw(attr_bytes(a));
      out.u64(ids_at);
      out.u64(8 * a.ids.size());
      ids_at += 8 * a.ids.size();
    }
    out.raw(data_.bytes());
    uint64_t body_at = out.size() + 16 * features_.size();
    for (const auto& [bit, body] : features_) {
      out.u64(body_at);
      out.u64(body.size());
      body_at += body.size();
    }
    for (const auto& [bit, body] : features_) out.raw(body);
    out.raw(layout.trailing);
    return std::move(out).take();
  }
  Bytes file() const { return file(Layout{}); }
  uint64_t data_offset() const {
    uint64_t at = 104;
    for (const Attr& a : attrs_) at += 8 * a.ids.size() + attrs_.front().size + 16U;
    return at;
  }

  // The same as a pipe: attributes and features are records at the beginning.
  Bytes pipe() const {
    ByteSink out = sink();
    put_magic(out);
    out.u64(16);
    for (const Attr& a : attrs_) {
      out.raw(record_bytes(64, 0, [&](ByteSink& s) {
        s.raw(attr_bytes(a));
        for (const uint64_t id : a.ids) s.u64(id);
      }));
    }
    for (const auto& [bit, body] : features_) {
      out.raw(record_bytes(80, 0, [&](ByteSink& s) {
        s.u64(static_cast<uint64_t>(bit));
        s.raw(body);
        s.align(8);
      }));
    }
    out.raw(data_.bytes());
    return std::move(out).take();
  }

 private:
  void put_magic(ByteSink& s) const { s.u64(0x32454c4946524550ULL); }
  uint8_t flag_byte(uint8_t byte) const {
    if (!big_) return byte;
    uint8_t reversed = 0;
    for (int bit = 0; bit < 8; ++bit) reversed = static_cast<uint8_t>(reversed << 1 | ((byte >> bit) & 1));
    return reversed;
  }

  bool big_;
  std::vector<Attr> attrs_;
  ByteSink data_;
  std::map<int, Bytes> features_;
};

using PerfDataPtr = std::shared_ptr<const PerfData>;

inline PerfDataPtr open_bytes(const Bytes& bytes) {
  const TempFile file(bytes);
  auto opened = PerfData::open(file.path());
  EXPECT_TRUE(opened.has_value()) << (opened ? ""
                                             : std::string(code_text(opened.error().code)) + " " +
                                                   opened.error().reason);
  return opened ? *opened : nullptr;
}

inline std::vector<Record> records_of(const PerfData& data) {
  std::vector<Record> records;
  data.for_each([&](const Record& record) {
    records.push_back(record);
    return true;
  });
  return records;
}

inline std::vector<std::string> comms_of(const PerfData& data) {
  std::vector<std::string> comms;
  for (const Record& record : records_of(data)) {
    if (record.type == 3) comms.emplace_back(parse_comm(record)->comm);
  }
  return comms;
}

inline const Notice* notice_of(std::span<const Notice> notices, Code code) {
  const auto found =
      std::find_if(notices.begin(), notices.end(), [&](const Notice& n) { return n.code == code; });
  return found == notices.end() ? nullptr : &*found;
}

}  // namespace asof::test
