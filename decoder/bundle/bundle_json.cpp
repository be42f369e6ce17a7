// Strict JSON access for manifests.
#include "decoder/bundle/bundle_json.h"

#include <fmt/format.h>
#include <rapidjson/error/en.h>
#include <rapidjson/memorystream.h>
#include <rapidjson/reader.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <set>

#include "decoder/io/json_memory.h"
#include "decoder/model/image.h"

namespace asof {
namespace {

// Manifests are small; these limit how much a hostile one can make us hold: a value of two bytes takes some eighty.
constexpr size_t kMaxManifest = 64U << 20U;
constexpr size_t kMostValues = size_t{1} << 20U;
constexpr size_t kMostDepth = 64;

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

// Keeps what the parser finds. A manifest that has a key twice is reported as a mistake; one that has too much ends the
// parser.
class ManifestBuilder {
 public:
  using SizeType = rapidjson::SizeType;
  explicit ManifestBuilder(JsonValue& root) : root_(root) {}

  // Why the parser was ended; empty: it was not.
  const std::string& too_much() const { return too_much_; }
  const std::optional<std::string>& twice() const { return twice_; }

  bool Null() { return add({nullptr}); }
  bool Bool(bool b) { return add({b}); }
  bool Int(int i) { return Int64(i); }
  bool Uint(unsigned i) { return Uint64(i); }
  bool Int64(int64_t i) { return i < 0 ? add({i}) : Uint64(static_cast<uint64_t>(i)); }
  bool Uint64(uint64_t i) { return add({i}); }
  bool Double(double d) { return add({d}); }
  bool RawNumber(const char* text, SizeType size, bool copy) { return String(text, size, copy); }
  bool String(const char* text, SizeType size, bool /*copy*/) { return add({std::string(text, size)}); }
  bool Key(const char* text, SizeType size, bool /*copy*/) {
    key_.assign(text, size);
    if (!open_.back().keys.insert(key_).second && !twice_) twice_ = key_;
    return counted();
  }
  bool StartObject() { return add({JsonValue::Object()}) && deeper(); }
  bool StartArray() { return add({JsonValue::Array()}) && deeper(); }
  bool EndObject(SizeType /*members*/) { return close(); }
  bool EndArray(SizeType /*values*/) { return close(); }

 private:
  struct Open {
    JsonValue* container = nullptr;
    std::set<std::string> keys;  // of an object
  };

  bool counted() {
    if (++values_ <= kMostValues) return true;
    too_much_ = fmt::format("more than {} values", kMostValues);
    return false;
  }
  bool add(JsonValue value) {
    if (open_.empty()) {
      root_ = std::move(value);
      last_ = &root_;
    } else if (auto* const object = std::get_if<JsonValue::Object>(&open_.back().container->value)) {
      last_ = &object->emplace_back(std::move(key_), std::move(value)).second;
    } else {
      last_ = &std::get<JsonValue::Array>(open_.back().container->value).emplace_back(std::move(value));
    }
    return counted();
  }
  // Into the container that was added last.
  bool deeper() {
    open_.push_back({last_, {}});
    if (open_.size() <= kMostDepth) return true;
    too_much_ = fmt::format("nested deeper than {}", kMostDepth);
    return false;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  JsonValue& root_;
  JsonValue* last_ = nullptr;
  std::vector<Open> open_;
  std::string key_;
  size_t values_ = 0;  // and keys
  std::string too_much_;
  std::optional<std::string> twice_;
};

std::string_view type_name(const JsonValue& value) {
  constexpr std::array<std::string_view, 8> kNames{"null",   "boolean", "number", "number",
                                                   "number", "string",  "array",  "object"};
  static_assert(kNames.size() == std::variant_size_v<decltype(JsonValue::value)>);
  return kNames[value.value.index()];
}

}  // namespace

std::unexpected<Error> JsonView::error(std::string reason, std::string hint) const {
  std::string text = place_.empty() ? std::move(reason) : fmt::format("{}: {}", place_, reason);
  return fail(Code::kBadManifestValue, *file_, Error::kNoOffset, std::move(text), std::move(hint));
}

Result<void> JsonView::object() const {
  if (value_->as<JsonValue::Object>() == nullptr)
    return error(fmt::format("expected an object, found {}", type_name(*value_)));
  return {};
}

Result<void> JsonView::only_keys(std::initializer_list<std::string_view> known) const {
  if (auto ok = object(); !ok) return ok;
  for (const auto& [key, unused] : *value_->as<JsonValue::Object>()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      return error(fmt::format("unknown key \"{}\"", key), "keys of the format: docs/bundle.md");
    }
  }
  return {};
}

std::optional<JsonView> JsonView::find(std::string_view key) const {
  const auto* const members = value_->as<JsonValue::Object>();
  if (members == nullptr) return std::nullopt;
  const auto it = std::ranges::find(*members, key, &JsonValue::Object::value_type::first);
  if (it == members->end() || it->second.as<std::nullptr_t>() != nullptr) return std::nullopt;
  return JsonView(&it->second, join(place_, key), file_);
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
  if (const auto* number = value_->as<uint64_t>()) value = *number;
  if (const auto* text = value_->as<std::string>()) value = parse_number(*text, decimal_strings);
  if (!value) return error("expected a number: an integer of 0 or more, or a \"0x\" string");
  if (*value > max) return error(fmt::format("{} is too big, the limit is {}", *value, max));
  return *value;
}

Result<int64_t> JsonView::signed_number() const {
  if (const auto* number = value_->as<int64_t>()) return *number;
  auto value = unsigned_number(INT64_MAX);
  if (!value) return std::unexpected(value.error());
  return static_cast<int64_t>(*value);
}

Result<std::string> JsonView::string() const {
  if (const auto* text = value_->as<std::string>()) return *text;
  return error(fmt::format("expected a string, found {}", type_name(*value_)));
}

Result<bool> JsonView::boolean() const {
  if (const auto* known = value_->as<bool>()) return *known;
  return error(fmt::format("expected true or false, found {}", type_name(*value_)));
}

Result<std::vector<JsonView>> JsonView::array() const {
  const auto* const values = value_->as<JsonValue::Array>();
  if (values == nullptr) return error(fmt::format("expected an array, found {}", type_name(*value_)));
  std::vector<JsonView> out;
  out.reserve(values->size());
  for (size_t i = 0; i < values->size(); ++i)
    out.emplace_back(&(*values)[i], fmt::format("{}[{}]", place_, i), file_);
  return out;
}

Result<std::vector<std::pair<std::string, JsonView>>> JsonView::members() const {
  if (auto ok = object(); !ok) return std::unexpected(ok.error());
  std::vector<std::pair<std::string, JsonView>> out;
  for (const auto& [key, value] : *value_->as<JsonValue::Object>())
    out.emplace_back(key, JsonView(&value, join(place_, key), file_));
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
  ManifestBuilder builder(out->value_);
  rapidjson::MemoryStream text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  rapidjson::GenericReader<rapidjson::UTF8<>, rapidjson::UTF8<>, JsonMemory> reader;
  const rapidjson::ParseResult parsed = reader.Parse<kParseFlags>(text, builder);
  if (!builder.too_much().empty()) {
    return fail(Code::kManifestNotJson, path, Error::kNoOffset,
                fmt::format("this is no manifest: {}", builder.too_much()));
  }
  if (parsed.IsError()) {
    return fail(Code::kManifestNotJson, path, parsed.Offset(),
                fmt::format("this is not JSON: {}", rapidjson::GetParseError_En(parsed.Code())));
  }
  if (builder.twice()) {
    return fail(Code::kManifestDuplicate, path, Error::kNoOffset,
                fmt::format("key \"{}\" appears twice in one object", *builder.twice()));
  }
  return out;
}

std::string JsonFile::resolve(const std::string& path) const {
  return (std::filesystem::path(path_).parent_path() / path).string();
}

}  // namespace asof
