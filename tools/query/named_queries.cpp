#include "tools/query/named_queries.h"

namespace asof {
namespace {

#include "tools/query/named_queries.inc"

}  // namespace

std::span<const NamedQuery> named_queries() { return kNamed; }

}  // namespace asof
