// Pieces of JSON lines. Addresses and hashes are strings ("0x..."), times are nanoseconds of perf's clock.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "textstore/address.h"
#include "textstore/time.h"

namespace asof {

// A JSON string with its quotes. Bytes that are no UTF-8 (names come from files) become '?'.
void put_json_string(std::string& out, std::string_view text);
// ,"key":"text"
void put_json_key(std::string& out, std::string_view key, std::string_view text);

// One object on one line: JsonLine("change").time("time", t).text("symbol", name).end().
class JsonLine {
 public:
  explicit JsonLine(std::string_view type);
  JsonLine& text(std::string_view key, std::string_view value);
  JsonLine& number(std::string_view key, uint64_t value);
  JsonLine& flag(std::string_view key, bool value);
  JsonLine& address(std::string_view key, Addr value);
  // null where a time is not known or has no end.
  JsonLine& time(std::string_view key, Time value);
  std::string end();

 private:
  std::string line_;
};

}  // namespace asof
