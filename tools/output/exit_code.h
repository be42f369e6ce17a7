// Exit status of every verb. Scripts depend on these numbers; docs/usage.md lists them.
#pragma once

namespace asof {

enum ExitCode : int {
  kExitOk = 0,
  kExitUsage = 1,  // unknown option, bad value
  kExitInput = 2,  // the input cannot be used, or nothing of its trace can be decoded
  // Decoded, with errors: under --strict, above --max-errors; validate found a difference; doctor something
  // bad.
  kExitErrors = 3,
  kExitInternal = 4,       // a failed check of asof itself
  kExitNoText = 5,         // missing text blocked all decoding
  kExitInterrupted = 130,  // SIGINT; what was written is valid
};

}  // namespace asof
