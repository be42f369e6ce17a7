// Strict JSON access for manifests. The parser is nlohmann::json, whose exceptions end in this file.
#include "decoder/bundle/bundle_json.h"

#include <fmt/format.h>

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

struct TooMuch {
  std::string what;
};

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

// nlohmann keeps the last of two equal keys; a manifest that has a key twice is reported as a mistake. One that has too much
// ends the parser.
class ParseWatch {
 public:
  using Json = nlohmann::json;
  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMostDepth) throw TooMuch{fmt::format("nested deeper than {}", kMostDepth)};
    if (++values_ > kMostValues) throw TooMuch{fmt::format("more than {} values", kMostValues)};
    switch (event) {
      case Json::parse_event_t::object_start:
        open_.emplace_back();
        break;
      case Json::parse_event_t::object_end:
        open_.pop_back();
        break;
      case Json::parse_event_t::key:
        if (!open_.back().insert(parsed.get<std::string>()).second && !found_)
          found_ = parsed.get<std::string>();
        break;
      default:
        break;
    }
    return true;
  }
  const std::optional<std::string>& found() const { return found_; }

 private:
  size_t values_ = 0;  // and keys, and ends
  std::vector<std::set<std::string>> open_;
  std::optional<std::string> found_;
};

}  // namespace

std::unexpected<Error> JsonView::error(std::string reason, std::string hint) const {
  std::string text = place_.empty() ? std::move(reason) : fmt::format("{}: {}", place_, reason);
  return fail(Code::kBadManifestValue, *file_, Error::kNoOffset, std::move(text), std::move(hint));
}

Result<void> JsonView::object() const {
  if (!value_->is_object()) return error(fmt::format("expected an object, found {}", value_->type_name()));
  return {};
}

Result<void> JsonView::only_keys(std::initializer_list<std::string_view> known) const {
  if (auto ok = object(); !ok) return ok;
  for (const auto& [key, unused] : value_->items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      return error(fmt::format("unknown key \"{}\"", key), "keys of the format: docs/bundle.md");
    }
  }
  return {};
}

std::optional<JsonView> JsonView::find(std::string_view key) const {
  if (!value_->is_object()) return std::nullopt;
  auto it = value_->find(std::string(key));
  if (it == value_->end() || it->is_null()) return std::nullopt;
  return JsonView(&*it, join(place_, key), file_);
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
  if (value_->is_number_unsigned()) value = value_->get<uint64_t>();
  if (value_->is_string()) value = parse_number(value_->get_ref<const std::string&>(), decimal_strings);
  if (!value) return error("expected a number: an integer of 0 or more, or a \"0x\" string");
  if (*value > max) return error(fmt::format("{} is too big, the limit is {}", *value, max));
  return *value;
}

Result<int64_t> JsonView::signed_number() const {
  if (value_->is_number_integer() && !value_->is_number_unsigned()) return value_->get<int64_t>();
  auto value = unsigned_number(INT64_MAX);
  if (!value) return std::unexpected(value.error());
  return static_cast<int64_t>(*value);
}

Result<std::string> JsonView::string() const {
  if (!value_->is_string()) return error(fmt::format("expected a string, found {}", value_->type_name()));
  return value_->get<std::string>();
}

Result<bool> JsonView::boolean() const {
  if (!value_->is_boolean())
    return error(fmt::format("expected true or false, found {}", value_->type_name()));
  return value_->get<bool>();
}

Result<std::vector<JsonView>> JsonView::array() const {
  if (!value_->is_array()) return error(fmt::format("expected an array, found {}", value_->type_name()));
  std::vector<JsonView> out;
  out.reserve(value_->size());
  for (size_t i = 0; i < value_->size(); ++i) {
    out.emplace_back(&(*value_)[i], fmt::format("{}[{}]", place_, i), file_);
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
  ParseWatch watch;
  try {
    out->value_ = nlohmann::json::parse(bytes.begin(), bytes.end(), std::ref(watch));
  } catch (const TooMuch& e) {
    return fail(Code::kManifestNotJson, path, Error::kNoOffset,
                fmt::format("this is no manifest: {}", e.what));
  } catch (const nlohmann::json::exception& e) {
    const auto* parse = dynamic_cast<const nlohmann::json::parse_error*>(&e);
    return fail(Code::kManifestNotJson, path, parse != nullptr ? parse->byte : Error::kNoOffset,
                fmt::format("this is not JSON: {}", e.what()));
  }
  if (watch.found()) {
    return fail(Code::kManifestDuplicate, path, Error::kNoOffset,
                fmt::format("key \"{}\" appears twice in one object", *watch.found()));
  }
  return out;
}

std::string JsonFile::resolve(const std::string& path) const {
  return (std::filesystem::path(path_).parent_path() / path).string();
}

}  // namespace asof
