#include "tools/cli/near_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace asof {
namespace {

constexpr size_t kMostShown = 3;

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b, size_t most) {
  if ((a.size() > b.size() ? a.size() - b.size() : b.size() - a.size()) > most) return most + 1;
  std::vector<size_t> before, last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    if (*std::ranges::min_element(row) > most) return most + 1;
    before = last;
    std::swap(last, row);
  }
  return std::min(last[b.size()], most + 1);
}

std::vector<std::string> near_names(std::string_view word, std::span<const std::string_view> names) {
  const std::string small = lower(word);
  const size_t most = std::max<size_t>(1, word.size() / 3);
  std::set<std::pair<size_t, std::string>> found;
  for (const std::string_view name : names) {
    if (name.empty() || name == word) continue;
    const std::string other = lower(name);
    size_t distance = edit_distance(small, other, most);
    // What is only longer or shorter is near when enough of it is given.
    if (distance > most && small.size() >= 3 && (other.starts_with(small) || small.starts_with(other)) &&
        other.size() >= 3)
      distance = most + 1;
    else if (distance > most)
      continue;
    found.emplace(distance, name);
    if (found.size() > kMostShown) found.erase(std::prev(found.end()));
  }
  std::vector<std::string> out;
  out.reserve(found.size());
  for (const auto& [distance, name] : found) out.push_back(name);
  return out;
}

std::string did_you_mean(std::string_view word, std::span<const std::string_view> names) {
  std::string out;
  for (const std::string& name : near_names(word, names))
    out += fmt::format("{}'{}'", out.empty() ? "did you mean " : " or ", name);
  return out.empty() ? out : out + "?";
}

}  // namespace asof
