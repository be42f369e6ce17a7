// Debuginfod: separate debug files from servers, by build-id, through elfutils' client library. It is loaded when it is
// first needed, so nothing depends on it; where servers are is for DEBUGINFOD_URLS to say, and files are kept in the
// client's cache.
#pragma once
#include <string>

#include "textstore/result.h"

namespace asof {

class Debuginfod {
 public:
  Debuginfod() = default;
  ~Debuginfod();
  Debuginfod(const Debuginfod&) = delete;
  Debuginfod& operator=(const Debuginfod&) = delete;

  // The path of a file on this machine; empty: no server has it. Error: E-TEXT-212. May take as long as
  // DEBUGINFOD_TIMEOUT says.
  Result<std::string> debug_file(const std::string& build_id);
  // Where the library keeps files; empty: not known.
  static std::string cache_folder();

 private:
  Result<void> load();

  void* client_ = nullptr;
  int (*find_)(void*, const unsigned char*, int, char**) = nullptr;
  void (*end_)(void*) = nullptr;
  bool failed_ = false;  // said once; there is no use in asking again
};

}  // namespace asof
