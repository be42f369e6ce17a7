// The grammar is that of the Rust reference, "Symbol mangling, v0". A back reference is an offset at which the text
// is read once more; names can be made whose expansion has no end, so every step takes from a budget.
#include "decoder/model/demangle_rust.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <utility>

#include "decoder/model/punycode.h"

namespace asof {
namespace {

constexpr int kMostDepth = 256;
constexpr int kStepsPerByte = 8;  // of output

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }

std::string_view basic_type(char c) {
  static constexpr std::array<std::string_view, 26> kTypes = {
      "i8",   "bool", "char", "f64", "str", "f32", "",    "u8", "isize", "usize", "",    "i32", "u32",
      "i128", "u128", "_",    "",    "",    "i16", "u16", "()", "...",   "",      "i64", "u64", "!"};
  return is_lower(c) ? kTypes[static_cast<size_t>(c - 'a')] : std::string_view();
}

class Reader {
 public:
  Reader(std::string_view text, size_t limit)
      : text_(text), limit_(limit), steps_(static_cast<int64_t>(limit) * kStepsPerByte) {}

  std::optional<std::string> run() {
    path(true);
    if (is_upper(peek())) {  // the crate in which it was made
      ++silent_;
      path(false);
      --silent_;
    }
    if (failed_ || at_ != text_.size()) return std::nullopt;
    return std::move(out_);
  }

 private:
  struct Deeper {
    explicit Deeper(Reader& r) : reader(r) {
      if (++r.depth_ > kMostDepth || --r.steps_ < 0) r.failed_ = true;
    }
    ~Deeper() { --reader.depth_; }
    Reader& reader;
  };

  char peek() const { return failed_ || at_ >= text_.size() ? '\0' : text_[at_]; }
  char next() {
    const char c = peek();
    if (c == '\0') {
      failed_ = true;
    } else {
      ++at_;
    }
    return c;
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void put(std::string_view part) {
    if (silent_ != 0 || failed_) return;
    if (out_.size() + part.size() > limit_) {
      failed_ = true;
    } else {
      out_ += part;
    }
  }

  uint64_t base62() {
    if (take('_')) return 0;
    uint64_t value = 0;
    while (!take('_')) {
      const char c = next();
      const int digit = is_digit(c) ? c - '0' : is_lower(c) ? c - 'a' + 10 : is_upper(c) ? c - 'A' + 36 : -1;
      if (digit < 0 || value > (UINT64_MAX - 62) / 62) failed_ = true;
      if (failed_) return 0;
      value = value * 62 + static_cast<uint64_t>(digit);
    }
    return value + 1;
  }
  uint64_t optional_base62(char tag) { return take(tag) ? base62() + 1 : 0; }

  std::string identifier() {
    const bool coded = take('u');
    if (!is_digit(peek())) failed_ = true;
    size_t size = 0;
    if (!take('0')) {
      while (is_digit(peek()) && size <= text_.size()) size = size * 10 + static_cast<size_t>(next() - '0');
    }
    take('_');
    if (failed_ || size > text_.size() - at_) {
      failed_ = true;
      return {};
    }
    const std::string_view bytes = text_.substr(at_, size);
    at_ += size;
    if (!coded) return std::string(bytes);
    auto name = punycode(bytes);
    failed_ = failed_ || !name;
    return name ? std::move(*name) : std::string();
  }

  // What stands at an earlier offset. Nothing is read there while nothing is printed.
  template <class Read>
  void back_reference(Read&& read) {
    const size_t from = at_ - 1;
    const uint64_t to = base62();
    if (to >= from) failed_ = true;
    if (failed_ || silent_ != 0) return;
    const size_t after = std::exchange(at_, static_cast<size_t>(to));
    read();
    at_ = after;
  }

  void path(bool value);
  void nested(bool value);
  void implementation();
  void arguments();
  void type();
  void pointer(char tag);
  void function();
  void dynamic();
  bool open_path();
  void constant();
  void integer(bool with_sign);
  void character();
  void lifetime(uint64_t index);
  template <class Body>
  void bound(Body&& body);
  template <class Each>
  size_t list(Each&& each) {
    size_t count = 0;
    for (; !failed_ && !take('E'); ++count) {
      if (count != 0) put(", ");
      each();
    }
    return count;
  }

  std::string_view text_;
  std::string out_;
  size_t limit_;
  int64_t steps_;
  size_t at_ = 0;
  uint64_t bound_ = 0;  // lifetimes
  int depth_ = 0, silent_ = 0;
  bool failed_ = false;
};

void Reader::path(bool value) {
  const Deeper deeper(*this);
  switch (next()) {
    case 'C':
      optional_base62('s');
      return put(identifier());
    case 'N':
      return nested(value);
    case 'M':
      implementation();
      put("<");
      type();
      return put(">");
    case 'X':
      implementation();
      [[fallthrough]];
    case 'Y':
      put("<");
      type();
      put(" as ");
      path(false);
      return put(">");
    case 'I':
      path(value);
      put(value ? "::<" : "<");
      list([&] { arguments(); });
      return put(">");
    case 'B':
      return back_reference([&] { path(value); });
    default:
      failed_ = true;
  }
}

// Where an implementation stands: not shown.
void Reader::implementation() {
  optional_base62('s');
  ++silent_;
  path(false);
  --silent_;
}

void Reader::nested(bool value) {
  const char space = next();
  if (!is_lower(space) && !is_upper(space)) failed_ = true;
  path(value);
  const uint64_t number = optional_base62('s');
  const std::string name = identifier();
  if (is_lower(space)) {
    if (!name.empty()) put("::");
    return put(name);
  }
  put("::{");
  put(space == 'C' ? "closure" : space == 'S' ? "shim" : std::string_view(&space, 1));
  if (!name.empty()) put(":");
  put(name);
  put(fmt::format("#{}}}", number));
}

void Reader::arguments() {
  if (take('L')) return lifetime(base62());
  if (take('K')) return constant();
  type();
}

void Reader::lifetime(uint64_t index) {
  put("'");
  if (index == 0) return put("_");
  if (index > bound_) {
    failed_ = true;
    return;
  }
  const uint64_t number = bound_ - index;
  put(number < 26 ? std::string(1, static_cast<char>('a' + number)) : fmt::format("_{}", number));
}

// for<'a, 'b>
template <class Body>
void Reader::bound(Body&& body) {
  const uint64_t count = optional_base62('G');
  if (count > text_.size()) failed_ = true;
  if (failed_) return;
  for (uint64_t i = 0; i < count; ++i) {
    put(i == 0 ? "for<" : ", ");
    ++bound_;
    lifetime(1);
  }
  if (count != 0) put("> ");
  body();
  bound_ -= count;
}

void Reader::pointer(char tag) {
  put("&");
  if (take('L')) {
    const uint64_t index = base62();
    if (index != 0) {
      lifetime(index);
      put(" ");
    }
  }
  if (tag == 'Q') put("mut ");
  type();
}

void Reader::type() {
  const Deeper deeper(*this);
  const char tag = next();
  if (const std::string_view basic = basic_type(tag); !basic.empty()) return put(basic);
  switch (tag) {
    case 'R':
    case 'Q':
      return pointer(tag);
    case 'P':
    case 'O':
      put(tag == 'P' ? "*const " : "*mut ");
      return type();
    case 'A':
    case 'S':
      put("[");
      type();
      if (tag == 'A') {
        put("; ");
        constant();
      }
      return put("]");
    case 'T':
      put("(");
      if (list([&] { type(); }) == 1) put(",");
      return put(")");
    case 'F':
      return bound([&] { function(); });
    case 'D':
      return dynamic();
    case 'B':
      return back_reference([&] { type(); });
    default:
      if (failed_) return;
      --at_;
      path(false);
  }
}

void Reader::function() {
  if (take('U')) put("unsafe ");
  if (take('K')) {
    std::string abi = "C";
    if (!take('C')) abi = identifier();
    for (char& c : abi) c = c == '_' ? '-' : c;
    put(fmt::format("extern \"{}\" ", abi));
  }
  put("fn(");
  list([&] { type(); });
  put(")");
  if (take('u')) return;
  put(" -> ");
  type();
}

void Reader::dynamic() {
  put("dyn ");
  bound([&] {
    for (size_t i = 0; !failed_ && !take('E'); ++i) {
      if (i != 0) put(" + ");
      bool open = open_path();
      while (take('p')) {
        put(open ? ", " : "<");
        open = true;
        put(identifier());
        put(" = ");
        type();
      }
      if (open) put(">");
    }
  });
  if (!take('L')) failed_ = true;
  const uint64_t index = base62();
  if (index == 0) return;
  put(" + ");
  lifetime(index);
}

// A trait's path, to which types of its members may be added: true while its list of arguments is open.
bool Reader::open_path() {
  const Deeper deeper(*this);
  bool open = false;
  if (take('B')) {
    back_reference([&] { open = open_path(); });
  } else if (take('I')) {
    path(false);
    put("<");
    list([&] { arguments(); });
    open = true;
  } else {
    path(false);
  }
  return open;
}

void Reader::integer(bool with_sign) {
  if (with_sign && take('n')) put("-");
  uint64_t value = 0;
  const size_t begin = at_;
  while (is_digit(peek()) || (peek() >= 'a' && peek() <= 'f')) {
    const char c = next();
    value = value << 4U | static_cast<uint64_t>(is_digit(c) ? c - '0' : c - 'a' + 10);
  }
  const std::string_view digits = text_.substr(begin, at_ - begin);
  if (!take('_')) failed_ = true;
  put(digits.size() > 16 ? fmt::format("0x{}", digits) : fmt::format("{}", value));
}

void Reader::character() {
  uint32_t value = 0;
  for (int digits = 0; !failed_ && !take('_'); ++digits) {
    const char c = next();
    if (digits == 6 || !(is_digit(c) || (c >= 'a' && c <= 'f'))) failed_ = true;
    value = value << 4U | static_cast<uint32_t>(is_digit(c) ? c - '0' : c - 'a' + 10);
  }
  if (value > 0x10ffff || failed_) return put("?");
  std::string text;
  put_utf8(text, value);
  put(value < 0x20 ? fmt::format("'\\u{{{:x}}}'", value) : fmt::format("'{}'", text));
}

void Reader::constant() {
  const Deeper deeper(*this);
  if (take('B')) return back_reference([&] { constant(); });
  const char tag = next();
  constexpr std::string_view kUnsigned = "htmyoj", kSigned = "aslxni";
  if (tag == 'p') return put("_");
  if (kUnsigned.find(tag) != std::string_view::npos) return integer(false);
  if (kSigned.find(tag) != std::string_view::npos) return integer(true);
  if (tag == 'b' && (peek() == '0' || peek() == '1')) {
    put(next() == '0' ? "false" : "true");
    failed_ = failed_ || !take('_');
    return;
  }
  if (tag == 'c') return character();
  failed_ = true;  // structures: not in stable Rust
}

}  // namespace

std::optional<std::string> demangle_rust_v0(std::string_view name, size_t limit) {
  name.remove_prefix(2);
  const size_t dot = std::min(name.find('.'), name.size());  // LLVM's suffixes
  return Reader(name.substr(0, dot), limit).run();
}

}  // namespace asof
