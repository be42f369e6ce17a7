#include "tools/packets/packet_style.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

#include "textstore/plain_text.h"
#include "tools/output/csv.h"
#include "tools/output/format.h"
#include "tools/output/json.h"

namespace asof {
namespace {

void put_hex(std::string& out, uint64_t value, size_t digits = 1) {
  std::array<char, 16> text;
  size_t n = text.size();
  do {
    text[--n] = "0123456789abcdef"[value & 0xf];
    value >>= 4;
  } while (value != 0);
  const size_t have = text.size() - n;
  if (have < digits) out.append(digits - have, '0');
  out.append(text.data() + n, have);
}

void put_number(std::string& out, uint64_t value) {
  std::array<char, 20> text;
  const auto r = std::to_chars(text.data(), text.data() + text.size(), value);
  out.append(text.data(), r.ptr);
}

void put_bytes(std::string& out, std::span<const uint8_t> bytes) {
  bool first = true;
  for (const uint8_t b : bytes) {
    if (!std::exchange(first, false)) out += ' ';
    put_hex(out, b, 2);
  }
}

void put_value(std::string& out, const PacketField& f) {
  switch (f.kind) {
    case PacketField::Kind::kHex:
      out += "0x";
      return put_hex(out, f.value);
    case PacketField::Kind::kText:
      out += f.text;
      return;
    default:
      put_number(out, f.value);
  }
}

// What lines of any style say in words.
void put_meaning(std::string& out, const TracePacket& k, std::span<const PacketField> fields) {
  if (!k.is_packet()) {
    if (k.code != Code::kNone) {
      out += code_text(k.code);
      out += ' ';
    }
    if (k.size != 0) out += format_plural(k.size, "byte", "bytes") + ": ";
    out += plain_text(k.reason);
    return;
  }
  if (k.type == kPacketPadding) {
    out += format_plural(k.size, "byte", "bytes");
    return;
  }
  bool first = true;
  for (const PacketField& f : fields) {
    if (f.kind == PacketField::Kind::kFlag && f.value == 0) continue;
    if (!std::exchange(first, false)) out += ' ';
    if (!f.bare) out += f.name;
    if (f.kind == PacketField::Kind::kFlag) continue;
    if (!f.bare) out += ' ';
    put_value(out, f);
  }
}

class Common : public PacketStyle {
 public:
  explicit Common(const PacketFormat& format) : format_(format) {}
  void start(const Stream& stream, std::span<const std::string_view> names) override {
    stream_ = &stream;
    names_ = names;
    name_ = plain_text(stream.name);
  }

 protected:
  uint64_t place(const TracePacket& k) const {
    return format_.file_offsets ? stream_->file_offset(k.offset).value_or(k.offset) : k.offset;
  }

  const PacketFormat format_;
  const Stream* stream_ = nullptr;
  std::span<const std::string_view> names_;
  std::string name_;  // of the stream
};

constexpr std::string_view kReset = "\033[0m", kBold = "\033[1m", kRed = "\033[1;31m", kGreen = "\033[32m",
                           kCyan = "\033[36m", kDim = "\033[90m", kYellow = "\033[33m";

// Sync points, branches, addresses, time, all else.
std::string_view color_of(std::string_view name) {
  const auto one_of = [&](std::initializer_list<std::string_view> prefixes) {
    return std::ranges::any_of(prefixes, [&](std::string_view p) { return name.starts_with(p); });
  };
  if (one_of({"LOST", "NOSYNC", "BAD", "CUT", "OVF", "Overflow", "Discard"})) return kRed;
  if (one_of({"PSB", "A-Sync", "Trace-Info"})) return kBold;
  if (one_of({"TNT", "Atom"})) return kGreen;
  if (one_of({"TIP", "FUP", "Address", "Source-Address", "Exception", "Q"})) return kCyan;
  if (name == "TSC" || one_of({"TMA", "MTC", "CYC", "CBR", "PAD", "Timestamp", "Cycle-Count", "Ignore"}))
    return kDim;
  return kYellow;
}

class TextStyle final : public Common {
 public:
  using Common::Common;
  void start(const Stream& stream, std::span<const std::string_view> names) override {
    Common::start(stream, names);
    width_ = 0;
    colors_.clear();
    for (const std::string_view n : names) {
      width_ = std::max(width_, n.size());
      colors_.push_back(format_.color ? color_of(n) : std::string_view());
    }
    name_ += ' ';
  }
  void line(std::string& out, const TracePacket& k, std::span<const PacketField> fields) override {
    out += name_;
    out += "0x";
    put_hex(out, place(k), 8);
    out += ' ';
    put_time(out, k.time);
    if (format_.raw) put_raw(out, k);
    const std::string_view name = names_[k.type];
    out += colors_[k.type];
    out += name;
    if (format_.color) out += kReset;
    const size_t name_end = out.size();
    out.append(width_ + 1 - std::min(width_, name.size()), ' ');
    const size_t before = out.size();
    put_meaning(out, k, fields);
    if (out.size() == before) out.resize(name_end);
    out += '\n';
  }
  void block(std::string& out, const Step& step, const std::string& symbol, bool sure) override {
    out += "    ";
    out += format_.color ? kDim : std::string_view();
    out += "0x";
    put_hex(out, step.block->ip);
    out += ' ';
    out += format_plural(step.count, "instruction", "instructions");
    if (!symbol.empty()) out += ' ' + plain_text(symbol);
    if (step.confidence != Confidence::kCertain) {
      out += ' ';
      out += confidence_name(step.confidence);
    }
    if (!sure) out += " (which packet is not known)";
    if (format_.color) out += kReset;
    out += '\n';
  }
  void gap(std::string& out, const Gap& gap, const std::string& text) override {
    out += "    ";
    out += format_.color ? kRed : std::string_view();
    out += code_text(gap.code);
    if (format_.color) out += kReset;
    out += ' ' + plain_text(text) + '\n';
  }

 private:
  static constexpr size_t kTimeWidth = 16, kRawWidth = 27;

  // Many packets have the time of the one before.
  void put_time(std::string& out, Time t) {
    if (t != time_ || time_text_.empty()) {
      time_ = t;
      time_text_ = fmt::format("{:>{}} ", format_time(t), kTimeWidth);
    }
    out += time_text_;
  }
  static void put_raw(std::string& out, const TracePacket& k) {
    const size_t before = out.size();
    put_bytes(out, k.bytes);
    if (k.bytes.size() < k.size && !k.bytes.empty()) out += "...";
    const size_t width = out.size() - before;
    out.append(width < kRawWidth ? kRawWidth - width : 1, ' ');
  }

  size_t width_ = 0;
  std::vector<std::string_view> colors_;
  Time time_ = kTimeMin;
  std::string time_text_;
};

class JsonStyle final : public Common {
 public:
  using Common::Common;
  void line(std::string& out, const TracePacket& k, std::span<const PacketField> fields) override {
    out += k.is_packet() ? "{\"type\":\"packet\"" : "{\"type\":\"gap\"";
    put_json_key(out, "stream", name_);
    number(out, "offset", k.offset);
    if (format_.file_offsets) number(out, "file_offset", place(k));
    number(out, "size", k.size);
    out += ",\"time\":";
    out += k.time == kTimeMin ? "null" : fmt::format("{}", k.time);
    out += ",\"packet\":\"";
    out += names_[k.type];
    out += '"';
    if (!k.is_packet()) {
      if (k.code != Code::kNone) put_json_key(out, "code", code_text(k.code));
      put_json_key(out, "reason", plain_text(k.reason));
    } else if (!fields.empty()) {
      put_fields(out, fields);
    }
    if (format_.raw) {
      out += ",\"bytes\":\"";
      put_bytes(out, k.bytes);
      out += '"';
    }
    out += "}\n";
  }
  void block(std::string& out, const Step& step, const std::string& symbol, bool sure) override {
    JsonLine line("block");
    line.text("stream", name_).address("ip", step.block->ip).number("instructions", step.count);
    if (!symbol.empty()) line.text("symbol", plain_text(symbol));
    out += line.text("conf", confidence_name(step.confidence)).flag("packet_known", sure).end();
  }
  void gap(std::string& out, const Gap& gap, const std::string& text) override {
    out += JsonLine("flow_gap")
               .text("stream", name_)
               .text("code", code_text(gap.code))
               .number("begin", gap.begin)
               .number("end", gap.end)
               .text("reason", plain_text(text))
               .end();
  }

 private:
  static void number(std::string& out, std::string_view key, uint64_t value) {
    out += ",\"";
    out += key;
    out += "\":";
    put_number(out, value);
  }
  static void put_fields(std::string& out, std::span<const PacketField> fields) {
    out += ",\"fields\":";
    char before = '{';
    for (const PacketField& f : fields) {
      out += std::exchange(before, ',');
      out += '"';
      out += f.name;
      out += "\":";
      const bool quoted = f.kind == PacketField::Kind::kHex || f.kind == PacketField::Kind::kText;
      if (quoted) out += '"';
      if (f.kind == PacketField::Kind::kFlag)
        out += f.value != 0 ? "true" : "false";
      else
        put_value(out, f);
      if (quoted) out += '"';
    }
    out += '}';
  }
};

class CsvStyle final : public Common {
 public:
  using Common::Common;
  std::string header() const override {
    return format_.raw ? "stream,offset,size,time,packet,meaning,bytes\n"
                       : "stream,offset,size,time,packet,meaning\n";
  }
  void line(std::string& out, const TracePacket& k, std::span<const PacketField> fields) override {
    out += csv_field(name_);
    out += ',';
    put_number(out, place(k));
    out += ',';
    put_number(out, k.size);
    out += ',';
    if (k.time != kTimeMin) out += fmt::format("{}", k.time);
    out += ',';
    out += names_[k.type];
    out += ',';
    meaning_.clear();
    put_meaning(meaning_, k, fields);
    out += csv_field(meaning_);
    if (format_.raw) {
      out += ',';
      put_bytes(out, k.bytes);
    }
    out += '\n';
  }

 private:
  std::string meaning_;
};

}  // namespace

std::unique_ptr<PacketStyle> make_packet_style(const PacketFormat& format) {
  if (format.kind == PacketFormat::Kind::kJson) return std::make_unique<JsonStyle>(format);
  if (format.kind == PacketFormat::Kind::kCsv) return std::make_unique<CsvStyle>(format);
  return std::make_unique<TextStyle>(format);
}

}  // namespace asof
