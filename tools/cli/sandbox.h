// The program takes away from itself what decoding does not need: other programs, the network, kernel interfaces, and
// writing anywhere but where its output goes. A fault that a capture could exploit then has little to reach.
//
// Source: Linux, Documentation/userspace-api/landlock.rst and seccomp_filter.rst.
#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace asof {

struct Sandbox {
  int landlock = 0;      // version of its interface; 0: the kernel has none, or refused
  bool seccomp = false;  // system calls are filtered

  // "Landlock 3, seccomp"
  std::string text() const;
};

enum class Network : uint8_t { kNo, kAsClient };

// For this thread and all that are started later: call it before any. `writable`: files and directories that may be
// made or written; of one that does not exist the nearest directory above it counts. Files may be read anywhere:
// captures name the files that they need. What the kernel does not offer is left out.
Sandbox enter_sandbox(std::span<const std::string> writable, Network network = Network::kNo);

// In a child process, which ends with it: what enter_sandbox() would do here.
Sandbox try_sandbox();

}  // namespace asof
