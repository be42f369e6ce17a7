// The compact protocol of Apache Thrift (thrift/doc/specs/thrift-compact-protocol.md), as far as Parquet needs it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace asof {

// Fields of a structure, in ascending order of their numbers.
class ThriftWriter {
 public:
  ThriftWriter& integer(int field, int64_t value, bool wide = true) {
    head(field, wide ? 6 : 5);
    zigzag(value);
    return *this;
  }
  ThriftWriter& text(int field, std::string_view value) {
    head(field, 8);
    bare_text(value);
    return *this;
  }
  ThriftWriter& flag(int field, bool value) {
    head(field, value ? 1 : 2);
    return *this;
  }
  // each(index) writes one structure, by begin_element() to end().
  template <class Each>
  ThriftWriter& structs(int field, size_t count, Each each) {
    list(field, count, 12);
    for (size_t i = 0; i < count; ++i) {
      last_.push_back(0);
      each(i);
      end();
    }
    return *this;
  }
  template <class Body>
  ThriftWriter& structure(int field, Body body) {
    head(field, 12);
    last_.push_back(0);
    body();
    end();
    return *this;
  }
  ThriftWriter& integers(int field, const std::vector<int32_t>& values) {
    list(field, values.size(), 5);
    for (const int32_t v : values) zigzag(v);
    return *this;
  }
  ThriftWriter& texts(int field, const std::vector<std::string>& values) {
    list(field, values.size(), 8);
    for (const std::string& v : values) bare_text(v);
    return *this;
  }
  // Of the outermost structure.
  std::string take() {
    end();
    return std::move(out_);
  }

 private:
  void head(int field, int type) {
    const int by = field - last_.back();
    last_.back() = field;
    if (by > 0 && by < 16) {
      out_ += static_cast<char>(by << 4 | type);
    } else {
      out_ += static_cast<char>(type);
      zigzag(field);
    }
  }
  void list(int field, size_t count, int type) {
    head(field, 9);
    if (count < 15) {
      out_ += static_cast<char>(count << 4 | static_cast<size_t>(type));
    } else {
      out_ += static_cast<char>(0xf0 | type);
      varint(count);
    }
  }
  void end() {
    out_ += '\0';
    last_.pop_back();
  }
  void bare_text(std::string_view value) {
    varint(value.size());
    out_ += value;
  }
  void zigzag(int64_t v) { varint(static_cast<uint64_t>(v) << 1 ^ static_cast<uint64_t>(v >> 63)); }
  void varint(uint64_t v) {
    for (; v >= 0x80; v >>= 7) out_ += static_cast<char>(v | 0x80);
    out_ += static_cast<char>(v);
  }

  std::string out_;
  std::vector<int> last_{0};  // number of the last field, by nesting
};

}  // namespace asof
