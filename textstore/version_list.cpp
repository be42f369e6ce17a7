#include "textstore/version_list.h"

#include <algorithm>
#include <cstring>
#include <queue>

namespace asof {
namespace {

bool earlier(const Version& a, const Version& b) {
  return a.from != b.from ? a.from < b.from : a.until < b.until;
}

bool touches(const Version& before, const Version& after) {
  return before.unsure == after.unsure && (before.until >= after.from || before.until + 1 == after.from);
}

void join_equal(std::vector<Version>& versions, size_t size, Budget& budget) {
  std::vector<size_t> open;  // kept ones that a later version can overlap or follow
  size_t kept = 0;
  for (size_t i = 0; i < versions.size(); ++i) {
    const Version v = versions[i];
    std::erase_if(open, [&](size_t k) { return !touches(versions[k], v); });
    const auto same = std::ranges::find_if(
        open, [&](size_t k) { return same_bytes(versions[k].bytes, v.bytes, size, budget); });
    if (same != open.end()) {
      versions[*same].until = std::max(versions[*same].until, v.until);
      continue;
    }
    // With made-up facts the list of open ones could grow without end; then equal ones may stay apart.
    if (open.size() >= 4 * kMaxCandidates) open.erase(open.begin());
    open.push_back(kept);
    versions[kept++] = v;
  }
  versions.resize(kept);
}

void order_ends(std::vector<Version>& versions) {
  const auto later = [](const Version& a, const Version& b) { return earlier(b, a); };
  std::priority_queue<Version, std::vector<Version>, decltype(later)> left(later, std::move(versions));
  std::vector<Version> out;
  while (!left.empty()) {
    const Version v = left.top();
    left.pop();
    for (auto longer = out.rbegin(); longer != out.rend() && longer->until > v.until; ++longer) {
      Version rest = *longer;
      rest.from = v.until + 1;
      longer->until = v.until;
      left.push(rest);
    }
    out.push_back(v);
  }
  versions = std::move(out);
}

}  // namespace

bool same_bytes(const uint8_t* a, const uint8_t* b, size_t size, Budget& budget) {
  if (a == b) return true;
  if (a == nullptr || b == nullptr) return false;
  return budget.take(size) && std::memcmp(a, b, size) == 0;
}

void add_version(std::vector<Version>& versions, Version v, Time sure_until) {
  if (v.bytes != nullptr && !v.unsure && sure_until < v.until) {
    Version rest = v;
    rest.unsure = true;
    rest.from = std::max(v.from, saturating_add(sure_until, 1));
    v.until = sure_until;
    versions.push_back(rest);
  }
  if (v.from <= v.until) versions.push_back(v);
}

bool any_overlap(const std::vector<Version>& versions) {
  Time until = kTimeMin;
  for (size_t i = 0; i < versions.size(); ++i) {
    if (i != 0 && versions[i].from <= until) return true;
    until = std::max(until, versions[i].until);
  }
  return false;
}

void tidy_versions(std::vector<Version>& versions, size_t size, Budget& budget) {
  if (versions.size() <= 1) return;
  if (!std::ranges::is_sorted(versions, earlier)) std::ranges::sort(versions, earlier);
  join_equal(versions, size, budget);
  if (any_overlap(versions)) order_ends(versions);
}

}  // namespace asof
