// JsonValue: a JSON document in memory. Debian 12's rapidjson/document.h has an assignment to a const member, which clang
// refuses from version 19 on; RapidJSON's reader and writer do not need it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace asof {

struct JsonValue {
  using Array = std::vector<JsonValue>;
  using Object = std::vector<std::pair<std::string, JsonValue>>;  // in the order of the file

  // An int64_t is negative.
  std::variant<std::nullptr_t, bool, int64_t, uint64_t, double, std::string, Array, Object> value = nullptr;

  // nullptr: it is something else.
  template <class T>
  const T* as() const {
    return std::get_if<T>(&value);
  }
};

}  // namespace asof
