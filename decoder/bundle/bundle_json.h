// Reading a JSON manifest strictly: every access says file and place ("streams[0].cpu") when it fails,
// duplicate and unknown keys are errors, numbers are integers. Used by the raw bundle, the LLDB bundle and
// counts of a truth.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "decoder/io/json_value.h"
#include "textstore/result.h"

namespace asof {

// One value of a manifest and where it is. A view: the JsonFile must outlive it.
class JsonView {
 public:
  JsonView(const JsonValue* value, std::string place, const std::string* file)
      : value_(value), place_(std::move(place)), file_(file) {}

  const std::string& place() const { return place_; }

  // Error (E-FILE-103) when this is no object or has a key outside `known`; the reason names it.
  Result<void> only_keys(std::initializer_list<std::string_view> known) const;
  // Member of an object. nullopt when it is absent or null.
  std::optional<JsonView> find(std::string_view key) const;
  // The same, where absence is an error; and with the conversions below.
  Result<JsonView> get(std::string_view key) const;
  Result<uint64_t> get_number(std::string_view key, uint64_t max = UINT64_MAX,
                              bool decimal_strings = false) const;
  Result<std::string> get_string(std::string_view key) const;
  Result<std::vector<JsonView>> get_array(std::string_view key) const;

  // A number that is a JSON integer or a string "0x..."; with `decimal_strings` also "123".
  Result<uint64_t> unsigned_number(uint64_t max = UINT64_MAX, bool decimal_strings = false) const;
  Result<int64_t> signed_number() const;
  Result<std::string> string() const;
  Result<bool> boolean() const;
  Result<std::vector<JsonView>> array() const;
  Result<void> object() const;
  // Of an object, in the order of the file.
  Result<std::vector<std::pair<std::string, JsonView>>> members() const;

  // An error at this place.
  std::unexpected<Error> error(std::string reason, std::string hint = {}) const;

 private:
  const JsonValue* value_;
  std::string place_;
  const std::string* file_;
};

class JsonFile {
 public:
  static Result<std::unique_ptr<JsonFile>> load(const std::string& path);
  JsonView root() const { return {&value_, "", &path_}; }
  const std::string& path() const { return path_; }
  // A path in the manifest: relative to its folder.
  std::string resolve(const std::string& path) const;

 private:
  std::string path_;
  JsonValue value_;
};

}  // namespace asof
