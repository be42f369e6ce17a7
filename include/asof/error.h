// Errors and notices. No input makes the library throw or end the process: what stops the work is an Error,
// what can be stepped over is a Gap (asof/flow.h) or a Notice. Exceptions come from the C++ library only
// (std::bad_alloc, std::system_error where no thread can be started).
#pragma once
#include <cstdint>
#include <expected>
#include <optional>
#include <string>

#include "asof/version.h"

namespace asof::v0 {

struct Error {
  std::string code;                       // stable, "E-FILE-003"; docs/errors.md explains each
  std::string where;                      // file or object
  std::optional<std::uint64_t> offset{};  // in bytes, in `where`
  std::string reason;                     // one line of English, not stable
  std::string hint;                       // what the user can do; may be empty
};

template <class T>
using Result = std::expected<T, Error>;

enum class Severity : std::uint8_t {
  kInfo,
  kLoss,   // something was not recorded
  kError,  // something is wrong, and was stepped over
};

// What opening a capture found and stepped over.
struct Notice {
  Severity severity = Severity::kInfo;
  std::string code;  // stable, "E-TEXT-501", "I-TEXT-207"
  std::string where;
  std::string reason;
  std::string hint;
  std::optional<std::uint64_t> offset{};  // in bytes, in `where`
  std::optional<std::int64_t> time{};     // ns of perf's clock
  std::uint64_t count = 1;                // how often
};

}  // namespace asof::v0
