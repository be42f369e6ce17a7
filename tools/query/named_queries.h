// Queries that have names: `asof query --named irq-latency`.
#pragma once
#include <span>
#include <string_view>

namespace asof {

struct NamedQuery {
  std::string_view name, meaning, sql;
};
std::span<const NamedQuery> named_queries();

}  // namespace asof
