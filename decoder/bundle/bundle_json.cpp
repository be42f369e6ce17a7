// Strict JSON access for manifests.
#include "decoder/bundle/bundle_json.h"

#include <fmt/format.h>
#include <rapidjson/error/en.h>
#include <rapidjson/memorystream.h>
#include <rapidjson/reader.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>

#include "decoder/model/image.h"

namespace asof {
namespace {

// Manifests are small; these limit how much a hostile one can make us hold: a value of two bytes takes some eighty.
constexpr size_t kMaxManifest = 64U << 20U;
constexpr size_t kMostValues = size_t{1} << 20U;
constexpr int kMostDepth = 64;

// Without recursion.
constexpr unsigned kParseFlags = rapidjson::kParseIterativeFlag | rapidjson::kParseValidateEncodingFlag;

std::string join(const std::string& place, std::string_view key) {
  return place.empty() ? std::string(key) : fmt::format("{}.{}", place, key);
}

std::optional<uint64_t> parse_number(std::string_view text, bool decimal) {
  int base = 10;
  if (text.starts_with("0x") || text.starts_with("0X")) {
    text.remove_prefix(2);
    base = 16;
  } else if (!decimal) {
    return std::nullopt;
  }
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  auto [rest, status] = std::from_chars(text.data(), end, value, base);
  if (text.empty() || status != std::errc() || rest != end) return std::nullopt;
  return value;
}

// Hands on what the parser finds. A manifest that has a key twice is reported as a mistake; one that has too much ends the
// parser.
class ParseWatch {
 public:
  using SizeType = rapidjson::SizeType;
  ParseWatch(JsonDocument& to, std::string& too_much, std::optional<std::string>& twice)
      : to_(to), too_much_(too_much), twice_(twice) {}

  bool Null() { return value() && to_.Null(); }
  bool Bool(bool b) { return value() && to_.Bool(b); }
  bool Int(int i) { return value() && to_.Int(i); }
  bool Uint(unsigned i) { return value() && to_.Uint(i); }
  bool Int64(int64_t i) { return value() && to_.Int64(i); }
  bool Uint64(uint64_t i) { return value() && to_.Uint64(i); }
  bool Double(double d) { return value() && to_.Double(d); }
  bool RawNumber(const char* text, SizeType size, bool copy) {
    return value() && to_.RawNumber(text, size, copy);
  }
  bool String(const char* text, SizeType size, bool copy) { return value() && to_.String(text, size, copy); }
  bool StartObject() {
    keys_.emplace_back();
    return value() && deeper() && to_.StartObject();
  }
  bool Key(const char* text, SizeType size, bool copy) {
    if (!keys_.back().emplace(text, size).second && !twice_) twice_.emplace(text, size);
    return value() && to_.Key(text, size, copy);
  }
  bool EndObject(SizeType size) {
    keys_.pop_back();
    --depth_;
    return to_.EndObject(size);
  }
  bool StartArray() { return value() && deeper() && to_.StartArray(); }
  bool EndArray(SizeType size) {
    --depth_;
    return to_.EndArray(size);
  }

 private:
  bool value() {
    if (++values_ <= kMostValues) return true;
    too_much_ = fmt::format("more than {} values", kMostValues);
    return false;
  }
  bool deeper() {
    if (++depth_ <= kMostDepth) return true;
    too_much_ = fmt::format("nested deeper than {}", kMostDepth);
    return false;
  }

  JsonDocument& to_;
  std::string& too_much_;
  std::optional<std::string>& twice_;
  size_t values_ = 0;  // and keys
  int depth_ = 0;
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
};

std::string_view type_name(const JsonValue& value) {
  switch (value.GetType()) {
    case rapidjson::kNullType:
      return "null";
    case rapidjson::kFalseType:
    case rapidjson::kTrueType:
      return "boolean";
    case rapidjson::kObjectType:
      return "object";
    case rapidjson::kArrayType:
      return "array";
    case rapidjson::kStringType:
      return "string";
    default:
      return "number";
  }
}

std::string_view text_of(const JsonValue& value) { return {value.GetString(), value.GetStringLength()}; }

}  // namespace

std::unexpected<Error> JsonView::error(std::string reason, std::string hint) const {
  std::string text = place_.empty() ? std::move(reason) : fmt::format("{}: {}", place_, reason);
  return fail(Code::kBadManifestValue, *file_, Error::kNoOffset, std::move(text), std::move(hint));
}

Result<void> JsonView::object() const {
  if (!value_->IsObject()) return error(fmt::format("expected an object, found {}", type_name(*value_)));
  return {};
}

Result<void> JsonView::only_keys(std::initializer_list<std::string_view> known) const {
  if (auto ok = object(); !ok) return ok;
  for (const auto& member : value_->GetObject()) {
    const std::string_view key = text_of(member.name);
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      return error(fmt::format("unknown key \"{}\"", key), "keys of the format: docs/bundle.md");
    }
  }
  return {};
}

std::optional<JsonView> JsonView::find(std::string_view key) const {
  if (!value_->IsObject()) return std::nullopt;
  const JsonValue name(rapidjson::StringRef(key.data(), static_cast<rapidjson::SizeType>(key.size())));
  const auto it = value_->FindMember(name);
  if (it == value_->MemberEnd() || it->value.IsNull()) return std::nullopt;
  return JsonView(&it->value, join(place_, key), file_);
}

Result<JsonView> JsonView::get(std::string_view key) const {
  if (auto ok = object(); !ok) return std::unexpected(ok.error());
  if (auto member = find(key)) return *member;
  return JsonView(value_, join(place_, key), file_).error("missing");
}

Result<uint64_t> JsonView::get_number(std::string_view key, uint64_t max, bool decimal_strings) const {
  auto member = get(key);
  if (!member) return std::unexpected(member.error());
  return member->unsigned_number(max, decimal_strings);
}

Result<std::string> JsonView::get_string(std::string_view key) const {
  auto member = get(key);
  if (!member) return std::unexpected(member.error());
  return member->string();
}

Result<std::vector<JsonView>> JsonView::get_array(std::string_view key) const {
  auto member = get(key);
  if (!member) return std::unexpected(member.error());
  return member->array();
}

Result<uint64_t> JsonView::unsigned_number(uint64_t max, bool decimal_strings) const {
  std::optional<uint64_t> value;
  if (value_->IsUint64()) value = value_->GetUint64();
  if (value_->IsString()) value = parse_number(text_of(*value_), decimal_strings);
  if (!value) return error("expected a number: an integer of 0 or more, or a \"0x\" string");
  if (*value > max) return error(fmt::format("{} is too big, the limit is {}", *value, max));
  return *value;
}

Result<int64_t> JsonView::signed_number() const {
  if (value_->IsInt64() && !value_->IsUint64()) return value_->GetInt64();
  auto value = unsigned_number(INT64_MAX);
  if (!value) return std::unexpected(value.error());
  return static_cast<int64_t>(*value);
}

Result<std::string> JsonView::string() const {
  if (!value_->IsString()) return error(fmt::format("expected a string, found {}", type_name(*value_)));
  return std::string(text_of(*value_));
}

Result<bool> JsonView::boolean() const {
  if (!value_->IsBool()) return error(fmt::format("expected true or false, found {}", type_name(*value_)));
  return value_->GetBool();
}

Result<std::vector<JsonView>> JsonView::array() const {
  if (!value_->IsArray()) return error(fmt::format("expected an array, found {}", type_name(*value_)));
  std::vector<JsonView> out;
  out.reserve(value_->Size());
  for (rapidjson::SizeType i = 0; i < value_->Size(); ++i)
    out.emplace_back(&(*value_)[i], fmt::format("{}[{}]", place_, i), file_);
  return out;
}

Result<std::vector<std::pair<std::string, JsonView>>> JsonView::members() const {
  if (auto ok = object(); !ok) return std::unexpected(ok.error());
  std::vector<std::pair<std::string, JsonView>> out;
  for (const auto& member : value_->GetObject()) {
    const std::string_view key = text_of(member.name);
    out.emplace_back(key, JsonView(&member.value, join(place_, key), file_));
  }
  return out;
}

Result<std::unique_ptr<JsonFile>> JsonFile::load(const std::string& path) {
  auto file = MappedFile::open(path);
  if (!file) return std::unexpected(file.error());
  std::span<const uint8_t> bytes = (*file)->bytes();
  if (bytes.size() > kMaxManifest) {
    return fail(Code::kManifestNotJson, path, Error::kNoOffset,
                fmt::format("{} bytes are too many for a manifest", bytes.size()));
  }
  auto out = std::make_unique<JsonFile>();
  out->path_ = path;
  std::string too_much;
  std::optional<std::string> twice;
  rapidjson::ParseResult parsed;
  const auto parse = [&](JsonDocument& document) {
    ParseWatch watch(document, too_much, twice);
    rapidjson::MemoryStream text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    rapidjson::GenericReader<rapidjson::UTF8<>, rapidjson::UTF8<>, JsonMemory> reader;
    parsed = reader.Parse<kParseFlags>(text, watch);
    return !parsed.IsError();
  };
  out->value_.Populate(parse);
  if (!too_much.empty()) {
    return fail(Code::kManifestNotJson, path, Error::kNoOffset,
                fmt::format("this is no manifest: {}", too_much));
  }
  if (parsed.IsError()) {
    return fail(Code::kManifestNotJson, path, parsed.Offset(),
                fmt::format("this is not JSON: {}", rapidjson::GetParseError_En(parsed.Code())));
  }
  if (twice) {
    return fail(Code::kManifestDuplicate, path, Error::kNoOffset,
                fmt::format("key \"{}\" appears twice in one object", *twice));
  }
  return out;
}

std::string JsonFile::resolve(const std::string& path) const {
  return (std::filesystem::path(path_).parent_path() / path).string();
}

}  // namespace asof
