// JSON within a page. What is not UTF-8 is replaced: names come from untrusted files.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "tools/output/json.h"

namespace asof {

class HtmlJson {
 public:
  HtmlJson& open(char bracket) {
    comma();
    out_ += bracket;
    first_ = true;
    return *this;
  }
  HtmlJson& close(char bracket) {
    out_ += bracket;
    first_ = false;
    return *this;
  }
  HtmlJson& key(std::string_view name) {
    comma();
    put_json_string(out_, name);
    out_ += ':';
    first_ = true;  // no comma before the value
    return *this;
  }
  HtmlJson& text(std::string_view value) {
    comma();
    put_json_string(out_, value);
    return *this;
  }
  template <class T>
  HtmlJson& number(T value) {
    comma();
    fmt::format_to(std::back_inserter(out_), "{}", value);
    return *this;
  }
  HtmlJson& null() {
    comma();
    out_ += "null";
    return *this;
  }
  HtmlJson& pair(std::string_view name, std::string_view value) { return key(name).text(value); }
  template <class T>
  HtmlJson& pair_number(std::string_view name, T value) {
    return key(name).number(value);
  }

  const std::string& all() const { return out_; }

 private:
  void comma() {
    if (!first_) out_ += ',';
    first_ = false;
  }
  std::string out_;
  bool first_ = true;
};

}  // namespace asof
