#include "tools/query/kept_facts.h"

#include <charconv>

#include "decoder/io/content_hash.h"
#include "tools/query/cache_key.h"

namespace asof {
namespace {

// Fields as KeyText writes them. After the first that is damaged all are empty.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : rest_(bytes) {}
  std::string text() {
    size_t size = 0;
    const auto r = std::from_chars(rest_.data(), rest_.data() + rest_.size(), size);
    const size_t digits = static_cast<size_t>(r.ptr - rest_.data());
    if (r.ec != std::errc() || digits == rest_.size() || *r.ptr != ':' || size > rest_.size() - digits - 1) {
      damaged_ = true;
      rest_ = {};
      return {};
    }
    const std::string out(rest_.substr(digits + 1, size));
    rest_.remove_prefix(digits + 1 + size);
    return out;
  }
  template <class T = uint64_t>
  T number() {
    const std::string digits = text();
    uint64_t value = 0;
    const auto r = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (r.ec != std::errc() || r.ptr != digits.data() + digits.size()) damaged_ = true;
    return static_cast<T>(value);
  }
  // How many fields follow: no more than there are bytes.
  size_t count() {
    const auto n = number();
    if (n > rest_.size()) damaged_ = true;
    return damaged_ ? 0 : n;
  }
  bool whole() const { return !damaged_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool damaged_ = false;
};

}  // namespace

std::string facts_bytes(const std::string& key, const KeptTables& facts) {
  KeyText out;
  out.add(key).add(uint64_t{facts.all}).add(static_cast<uint64_t>(facts.status));
  out.add(facts.names.size());
  for (const std::string& name : facts.names) out.add(name);
  out.add(facts.indices.size());
  for (const std::string& name : facts.indices) out.add(name);
  out.add(facts.notices.size());
  for (const Notice& n : facts.notices) {
    out.add(static_cast<uint64_t>(n.severity)).add(code_text(n.code)).add(n.where).add(n.offset);
    out.add(static_cast<uint64_t>(n.time)).add(n.reason).add(n.hint).add(n.count);
  }
  out.add(facts.files.size());
  for (const FileState& f : facts.files) {
    out.add(f.path).add(uint64_t{f.there}).add(f.device).add(f.inode).add(f.size);
    out.add(static_cast<uint64_t>(f.modified)).add(static_cast<uint64_t>(f.changed));
  }
  // Their content is read again, too.
  out.add(files_text(facts.files).value_or("changed"));
  return out.text();
}

std::optional<KeptTables> facts_of(std::string_view bytes, const std::string& key) {
  Fields in(bytes);
  if (in.text() != key) return std::nullopt;
  KeptTables out;
  out.all = in.number() != 0;
  out.status = in.number<int>();
  for (size_t n = in.count(); n > 0; --n) out.names.insert(in.text());
  for (size_t n = in.count(); n > 0; --n) out.indices.insert(in.text());
  for (size_t n = in.count(); n > 0; --n) {
    Notice notice;
    notice.severity = in.number<Notice::Severity>();
    notice.code = code_of(in.text()).value_or(Code::kNone);
    notice.where = in.text();
    notice.offset = in.number();
    notice.time = in.number<Time>();
    notice.reason = in.text();
    notice.hint = in.text();
    notice.count = in.number();
    out.notices.push_back(std::move(notice));
  }
  for (size_t n = in.count(); n > 0; --n) {
    FileState f;
    f.path = in.text();
    f.there = in.number() != 0;
    f.device = in.number();
    f.inode = in.number();
    f.size = in.number();
    f.modified = in.number<int64_t>();
    f.changed = in.number<int64_t>();
    out.files.push_back(std::move(f));
  }
  const std::string files = in.text();
  const auto now = files_text(out.files);
  if (!in.whole() || !now || *now != files) return std::nullopt;
  return out;
}

}  // namespace asof
