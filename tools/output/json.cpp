#include "tools/output/json.h"

#include <fmt/format.h>

#include "decoder/io/json_memory.h"

namespace asof {
namespace {

// The concept Stream of rapidjson/stream.h, as far as it is written to.
struct StringStream {
  using Ch = char;
  void Put(char c) { out += c; }
  void Flush() {}
  std::string& out;
};

}  // namespace

void put_json_string(std::string& out, std::string_view text) {
  const size_t before = out.size();
  StringStream stream{out};
  rapidjson::Writer<StringStream, rapidjson::UTF8<>, rapidjson::UTF8<>, JsonMemory,
                    rapidjson::kWriteValidateEncodingFlag>
      writer(stream);
  if (writer.String(text.data(), static_cast<rapidjson::SizeType>(text.size()))) return;
  out.resize(before);
  std::string ascii;
  for (const char c : text) ascii += static_cast<unsigned char>(c) < 0x80 ? c : '?';
  put_json_string(out, ascii);
}

void put_json_key(std::string& out, std::string_view key, std::string_view text) {
  fmt::format_to(std::back_inserter(out), ",\"{}\":", key);
  put_json_string(out, text);
}

JsonLine::JsonLine(std::string_view type) : line_("{\"type\":") { put_json_string(line_, type); }

JsonLine& JsonLine::text(std::string_view key, std::string_view value) {
  put_json_key(line_, key, value);
  return *this;
}

JsonLine& JsonLine::number(std::string_view key, uint64_t value) {
  fmt::format_to(std::back_inserter(line_), ",\"{}\":{}", key, value);
  return *this;
}

JsonLine& JsonLine::flag(std::string_view key, bool value) {
  fmt::format_to(std::back_inserter(line_), ",\"{}\":{}", key, value);
  return *this;
}

JsonLine& JsonLine::address(std::string_view key, Addr value) {
  fmt::format_to(std::back_inserter(line_), ",\"{}\":\"{:#x}\"", key, value);
  return *this;
}

JsonLine& JsonLine::time(std::string_view key, Time value) {
  if (value == kTimeMin || value == kTimeMax) {
    fmt::format_to(std::back_inserter(line_), ",\"{}\":null", key);
  } else {
    fmt::format_to(std::back_inserter(line_), ",\"{}\":{}", key, value);
  }
  return *this;
}

std::string JsonLine::end() { return std::move(line_) + "}\n"; }

}  // namespace asof
