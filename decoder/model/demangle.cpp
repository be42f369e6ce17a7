// libiberty knows C++ and Rust's first mangling. It has bounds for the depth of its recursion, not for its time:
// a name of some hundred letters whose substitutions double each other takes years to print. So the tree that it
// parses is measured before it is printed.
#include "decoder/model/demangle.h"

#include <libiberty/demangle.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <unordered_map>

#include "decoder/model/demangle_rust.h"
#include "textstore/plain_text.h"

namespace asof {
namespace {

// Of a name, in letters and nodes visited. The largest of libLLVM's names takes a twentieth.
constexpr uint64_t kMaxCost = uint64_t{1} << 20;
// A conversion operator's type is parsed twice at each level.
constexpr size_t kMaxConversions = 8;

uint64_t plus(uint64_t a, uint64_t b) { return std::min(a + b, kMaxCost); }
uint64_t times(uint64_t a, uint64_t b) { return b != 0 && a > kMaxCost / b ? kMaxCost : a * b; }

// What printing a subtree takes, at most. Subtrees are shared, so this is not their number of nodes.
struct Cost {
  uint64_t size = 0;        // with each template parameter as one letter
  uint64_t parameters = 0;  // template parameters, each of which is replaced by an argument
  uint64_t scopes = 0;      // functions within each other whose template arguments those can be
};

class TreeCost {
 public:
  uint64_t of(const demangle_component* tree) {
    // The length of packs is needed beforehand: an expansion prints its pattern that often.
    pack_ = longest_list(tree, 0);
    const Cost all = measure(tree);
    uint64_t argument = argument_.size;
    for (uint64_t i = 0; i < all.scopes; ++i)
      argument = plus(argument_.size, times(argument_.parameters, argument));
    return circular_ ? kMaxCost : plus(all.size, times(all.parameters, argument));
  }

 private:
  struct Kids {
    const demangle_component *left = nullptr, *right = nullptr;
  };

  static Kids kids_of(const demangle_component& c) {
    switch (c.type) {
      case DEMANGLE_COMPONENT_NAME:
      case DEMANGLE_COMPONENT_TEMPLATE_PARAM:
      case DEMANGLE_COMPONENT_FUNCTION_PARAM:
      case DEMANGLE_COMPONENT_SUB_STD:
      case DEMANGLE_COMPONENT_BUILTIN_TYPE:
      case DEMANGLE_COMPONENT_EXTENDED_BUILTIN_TYPE:
      case DEMANGLE_COMPONENT_OPERATOR:
      case DEMANGLE_COMPONENT_CHARACTER:
      case DEMANGLE_COMPONENT_NUMBER:
      case DEMANGLE_COMPONENT_UNNAMED_TYPE:
        return {};
      case DEMANGLE_COMPONENT_CTOR:
        return {c.u.s_ctor.name, nullptr};
      case DEMANGLE_COMPONENT_DTOR:
        return {c.u.s_dtor.name, nullptr};
      case DEMANGLE_COMPONENT_EXTENDED_OPERATOR:
        return {c.u.s_extended_operator.name, nullptr};
      case DEMANGLE_COMPONENT_FIXED_TYPE:
        return {c.u.s_fixed.length, nullptr};
      case DEMANGLE_COMPONENT_LAMBDA:
      case DEMANGLE_COMPONENT_DEFAULT_ARG:
        return {c.u.s_unary_num.sub, nullptr};
      default:
        return {c.u.s_binary.left, c.u.s_binary.right};
    }
  }

  static uint64_t letters(const demangle_component& c) {
    constexpr uint64_t kNode = 16;  // an operator, a keyword
    return c.type == DEMANGLE_COMPONENT_NAME ? kNode + static_cast<uint64_t>(std::max(c.u.s_name.len, 0))
                                             : kNode;
  }

  uint64_t longest_list(const demangle_component* c, uint64_t so_far) {
    if (c == nullptr || !listed_.try_emplace(c).second) return so_far;
    uint64_t length = 0;
    for (const demangle_component* a = c; a != nullptr && a->type == DEMANGLE_COMPONENT_TEMPLATE_ARGLIST;
         a = a->u.s_binary.right) {
      if (++length > kMaxMangled) break;
    }
    const Kids kids = kids_of(*c);
    return longest_list(kids.right, longest_list(kids.left, std::max(so_far, length)));
  }

  // As deep as the parser's own recursion at most.
  Cost measure(const demangle_component* c) {
    if (c == nullptr) return {};
    const auto [known, fresh] = costs_.try_emplace(c);
    if (!fresh) {
      circular_ = circular_ || !known->second;
      return known->second.value_or(Cost{});
    }
    const Kids kids = kids_of(*c);
    const Cost left = measure(kids.left), right = measure(kids.right);
    Cost all{plus(letters(*c), plus(left.size, right.size)), plus(left.parameters, right.parameters),
             std::max(left.scopes, right.scopes)};
    if (c->type == DEMANGLE_COMPONENT_TEMPLATE_PARAM) all.parameters = 1;
    if (c->type == DEMANGLE_COMPONENT_TYPED_NAME) ++all.scopes;
    if (c->type == DEMANGLE_COMPONENT_PACK_EXPANSION) {
      all.size = times(all.size, pack_ + 2);  // and looked through once for the pack
      all.parameters = times(all.parameters, pack_ + 2);
    }
    if (c->type == DEMANGLE_COMPONENT_TEMPLATE_ARGLIST) {
      argument_.size = std::max(argument_.size, all.size);
      argument_.parameters = std::max(argument_.parameters, all.parameters);
    }
    costs_[c] = all;
    return all;
  }

  std::unordered_map<const demangle_component*, std::optional<Cost>> costs_;  // empty: not finished
  std::unordered_map<const demangle_component*, char> listed_;
  Cost argument_;
  uint64_t pack_ = 0;
  bool circular_ = false;
};

struct Text {
  std::string out;
  size_t limit;
  bool too_long = false;
};

void append(const char* part, size_t size, void* to) {
  auto& text = *static_cast<Text*>(to);
  text.too_long = text.too_long || text.out.size() + size > text.limit;
  if (!text.too_long) text.out.append(part, size);
}

std::optional<std::string> taken(Text&& text, bool accepted) {
  if (!accepted || text.too_long || text.out.empty() || !is_plain_text(text.out)) return std::nullopt;
  return std::move(text.out);
}

size_t count_of(std::string_view text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size()))
    ++count;
  return count;
}

// Back references, in any way of reading the name.
size_t references(std::string_view name) {
  size_t count = 0;
  for (size_t i = 0; i + 1 < name.size(); ++i) {
    const char c = name[i + 1];
    const bool number = c == '_' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z');
    count += (name[i] == 'S' || name[i] == 'T') && number ? 1 : 0;
  }
  return count;
}

// Whether printing ends soon. libiberty reads names with `sr` (a qualified name in an expression) in one of two ways,
// and does not say in which; few references cannot double much in either.
bool affordable(const std::string& name) {
  constexpr size_t kMostReferences = 32;
  constexpr size_t kFewReferences = 12;
  if (count_of(name, "cv") > kMaxConversions) return false;
  const size_t copies = references(name);
  if (copies <= kFewReferences && name.find("Dp") == std::string::npos) return true;
  if (copies > kMostReferences && name.find("sr") != std::string::npos) return false;
  void* memory = nullptr;
  const demangle_component* tree =
      cplus_demangle_v3_components(name.c_str(), DMGL_PARAMS | DMGL_ANSI, &memory);
  const std::unique_ptr<void, decltype(&std::free)> owner(memory, &std::free);
  return tree != nullptr && TreeCost().of(tree) < kMaxCost;
}

std::optional<std::string> demangle_cpp(const std::string& name, int options, size_t limit) {
  if (!affordable(name)) return std::nullopt;
  Text text{{}, limit};
  // libiberty's own limit is meant for its stack, which kMaxMangled bounds as well.
  options |= DMGL_NO_RECURSE_LIMIT;
  const bool done = cplus_demangle_v3_callback(name.c_str(), options, append, &text) != 0;
  return taken(std::move(text), done);
}

std::optional<std::string> demangle_rust_legacy(const std::string& name, size_t limit) {
  Text text{{}, limit};
  const bool done = rust_demangle_callback(name.c_str(), DMGL_NO_OPTS, append, &text) != 0;
  return taken(std::move(text), done);
}

// Go's linker writes bytes of an import path that would disturb it as %xx.
std::optional<std::string> unescape_go(std::string_view name) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  std::string out;
  bool any = false;
  for (size_t i = 0; i < name.size(); ++i) {
    const int high = name[i] == '%' && i + 2 < name.size() ? digit(name[i + 1]) : -1;
    const int low = high >= 0 ? digit(name[i + 2]) : -1;
    const int byte = high * 16 + low;
    if (low < 0 || (byte != '.' && byte != '%' && byte != '"' && byte < 0x80)) {
      out += name[i];
      continue;
    }
    out += static_cast<char>(byte);
    i += 2;
    any = true;
  }
  if (!any || name.find('.') == std::string_view::npos || !is_plain_text(out)) return std::nullopt;
  return out;
}

bool word_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

}  // namespace

bool looks_mangled(std::string_view name) {
  if (name.size() > 3 && name[0] == '_' && (name[1] == 'Z' || name[1] == 'R')) return true;
  return name.find('%') != std::string_view::npos;
}

std::optional<std::string> demangle(std::string_view name, Parameters parameters) {
  if (!looks_mangled(name) || name.size() > kMaxMangled) return std::nullopt;
  if (name[0] != '_') return unescape_go(name);
  // "@plt", and the version of a dynamic symbol.
  const size_t at = std::min(name.find('@'), name.size());
  const std::string mangled(name.substr(0, at));
  const size_t limit = max_demangled(mangled.size());
  std::optional<std::string> out;
  if (mangled[1] == 'R') {
    out = demangle_rust_v0(mangled, limit);
  } else {
    const int options = parameters == Parameters::kYes ? DMGL_PARAMS | DMGL_ANSI : DMGL_NO_OPTS;
    if (mangled.starts_with("_ZN")) out = demangle_rust_legacy(mangled, limit);
    if (!out) out = demangle_cpp(mangled, options, limit);
  }
  if (out) *out += name.substr(at);
  return out;
}

bool may_be_called(std::string_view name, std::string_view wanted) {
  // Identifiers stand in mangled names as they are, except those with abbreviations (all of them in std).
  const std::string_view base = wanted.substr(0, wanted.find_first_of("(<"));
  if (base.find_first_of("{ ") != std::string_view::npos) return true;  // words of the demangler's own
  std::string_view longest;
  for (size_t i = 0; i < base.size();) {
    size_t end = i;
    while (end < base.size() && word_letter(base[end])) ++end;
    const std::string_view word = base.substr(i, end - i);
    if (word == "operator" || word == "std") return true;
    if (word.size() > longest.size()) longest = word;
    i = std::max(end, i + 1);
  }
  return name.find(longest) != std::string_view::npos;
}

}  // namespace asof
