// Output: bytes to a file or standard output through one large buffer. A file has another name until finish(): what
// is not finished, or could not be written, is removed. A reader that goes away (`asof ... |
// head`) is no error: closed() becomes true and the verb stops quietly.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "textstore/result.h"

namespace asof {

class Output {
 public:
  // kAtOnce: for what is read while it is written.
  enum class Named : uint8_t { kWhenWhole, kAtOnce };
  // Standard output when `path` is empty or "-".
  static Result<Output> open(const std::string& path, Named named = Named::kWhenWhole);
  // To an open file, which stays the caller's; `path` is for messages.
  static Output to(int fd, std::string path) { return {fd, false, std::move(path)}; }
  Output(Output&& other) noexcept;
  Output& operator=(Output&& other) noexcept;
  ~Output();

  void write(std::string_view text);
  // False once the other end is closed or the disk is full; error() returns which.
  bool flush();
  bool closed() const { return closed_; }
  bool is_terminal() const;
  size_t columns() const;  // of the terminal; 0: it is none
  // All is written. False: some of it could not be, and there is no file; take_failure() says why.
  bool finish();
  // Set when writing failed for a reason other than a closed pipe.
  const std::string& error() const { return error_; }

  // The first failure in this process that nobody has asked for. Whoever ends the program must ask: what a destructor
  // could not write is known here only.
  static std::optional<Error> take_failure();

 private:
  Output(int fd, bool owned, std::string path) : fd_(fd), owned_(owned), path_(std::move(path)) {}
  void put(std::string_view text);
  void set_error(int number);

  int fd_ = -1;
  bool owned_ = false;
  bool closed_ = false;
  std::string path_;
  std::string unfinished_;  // the name that the file has until then; empty: it has its own
  std::string buffer_;
  std::string error_;
};

// SIGPIPE ignored; SIGINT, SIGTERM and SIGHUP remembered, so that temporary files are removed. SIGBUS, which
// reading a file that became shorter gives, ends the program with a code. Call once from main().
void install_signal_handlers();
bool interrupted();

}  // namespace asof
