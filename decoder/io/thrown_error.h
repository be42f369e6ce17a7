// ThrownError: an Error met where no Result can be returned: input that was accepted and, when it is read, is not there.
#pragma once
#include <stdexcept>
#include <utility>

#include "textstore/result.h"

namespace asof {

class ThrownError final : public std::runtime_error {
 public:
  explicit ThrownError(Error error) : std::runtime_error(error.reason), error_(std::move(error)) {}
  const Error& error() const { return error_; }

 private:
  Error error_;
};

}  // namespace asof
