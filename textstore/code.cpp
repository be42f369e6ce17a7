#include "textstore/code.h"

#include <algorithm>
#include <array>
#include <ostream>

namespace asof {
namespace {

constexpr auto kTexts = std::to_array<std::string_view>({
    "",
#define ASOF_CODE(name, text) text,
#include "textstore/codes.def"
#undef ASOF_CODE
});
static_assert(std::ranges::is_sorted(kTexts), "code_of() searches by halves");
static_assert(kTexts.size() <= 256, "Code has 8 bits");

constexpr std::array<std::string_view, 7> kFamilies = {"", "DATA", "FILE", "FLOW", "LOST", "SIDE", "TEXT"};

// The texts are "E-FLOW-001" and the like.
constexpr CodeFamily family_in(std::string_view text) {
  for (size_t i = 1; i < kFamilies.size(); ++i) {
    if (text.size() > 6 && text.substr(2, 4) == kFamilies[i]) return static_cast<CodeFamily>(i);
  }
  return CodeFamily::kNone;
}
static_assert(std::ranges::all_of(kTexts, [](std::string_view t) {
  return t.empty() || (t.size() == 10 && family_in(t) != CodeFamily::kNone);
}));

// What decisions need of the texts.
struct Traits {
  CodeFamily family = CodeFamily::kNone;
  bool error_or_loss = false;
  bool damage = false;
};
constexpr auto kTraits = [] {
  std::array<Traits, kTexts.size()> all{};
  for (size_t i = 1; i < all.size(); ++i) {
    const std::string_view text = kTexts[i];
    all[i].family = family_in(text);
    all[i].error_or_loss = text.starts_with("E-");
    all[i].damage =
        text.starts_with("E-DATA-1") || text.starts_with("E-SIDE-3") || text.starts_with("E-FILE-");
  }
  return all;
}();

const Traits& traits(Code code) { return kTraits[static_cast<size_t>(code)]; }

}  // namespace

std::string_view code_text(Code code) { return kTexts[static_cast<size_t>(code)]; }

std::optional<Code> code_of(std::string_view text) {
  const auto it = std::ranges::lower_bound(kTexts, text);
  if (text.empty() || it == kTexts.end() || *it != text) return std::nullopt;
  return static_cast<Code>(it - kTexts.begin());
}

CodeFamily family_of(Code code) { return traits(code).family; }

std::string_view family_text(CodeFamily family) { return kFamilies[static_cast<size_t>(family)]; }

bool is_error_or_loss(Code code) { return traits(code).error_or_loss; }

bool is_damage(Code code) { return traits(code).damage; }

std::ostream& operator<<(std::ostream& out, Code code) { return out << code_text(code); }

}  // namespace asof
