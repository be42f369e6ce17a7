// Result<T>: only where work cannot continue. Damage in the input that can be stepped over is data (a Gap, a
// Notice), never an Error.
#pragma once
#include <cstdint>
#include <expected>
#include <string>
#include <utility>

#include "textstore/code.h"

namespace asof {

// One line of diagnosis. `where` names the file or object; `offset` is a
// byte offset in it, or kNoOffset. `hint` says what the user can do, and may be empty.
struct Error {
  static constexpr uint64_t kNoOffset = UINT64_MAX;
  Code code = Code::kNone;
  std::string where;
  uint64_t offset = kNoOffset;
  std::string reason;
  std::string hint;
};

template <class T>
using Result = std::expected<T, Error>;

inline std::unexpected<Error> fail(Code code, std::string where, uint64_t offset, std::string reason,
                                   std::string hint = {}) {
  return std::unexpected(Error{code, std::move(where), offset, std::move(reason), std::move(hint)});
}

}  // namespace asof
