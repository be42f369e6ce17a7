#include "tools/cli/sandbox.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/landlock.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <memory>

#include "decoder/io/descriptor.h"
#include "textstore/sanitized.h"

namespace asof {
namespace {

#if defined(ASOF_ADDRESS_SANITIZER) || defined(ASOF_THREAD_SANITIZER)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

namespace fs = std::filesystem;

// Rights that newer headers name (linux/landlock.h, interface 2 and 3).
constexpr uint64_t kRefer = 1ULL << 13U, kTruncate = 1ULL << 14U;
constexpr uint64_t kOfFiles = LANDLOCK_ACCESS_FS_WRITE_FILE | kTruncate;

uint64_t handled_rights(int version) {
  uint64_t rights = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_WRITE_FILE |
                    LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |
                    LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |
                    LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
                    LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM;
  if (version >= 2) rights |= kRefer;
  if (version >= 3) rights |= kTruncate;
  return rights;
}

// No device, FIFO or socket is ever made.
constexpr uint64_t kNeverGiven = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                                 LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
                                 LANDLOCK_ACCESS_FS_MAKE_BLOCK;

Descriptor nearest_that_exists(const std::string& path) {
  std::error_code failed;
  fs::path at = fs::absolute(path, failed);
  while (!failed) {
    Descriptor file(::open(at.c_str(), O_PATH | O_CLOEXEC));
    if (file || at == at.parent_path()) return file;
    at = at.parent_path();
  }
  return Descriptor();
}

void allow_writing(int ruleset, const std::string& path, uint64_t handled) {
  const Descriptor file = nearest_that_exists(path);
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0) return;
  landlock_path_beneath_attr rule{};
  rule.parent_fd = file.get();
  rule.allowed_access = handled & ~kNeverGiven;
  if (!S_ISDIR(status.st_mode)) rule.allowed_access &= kOfFiles;
  ::syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
}

int enter_landlock(std::span<const std::string> writable) {
  const long version = ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version <= 0) return 0;
  landlock_ruleset_attr attr{};
  attr.handled_access_fs = handled_rights(static_cast<int>(version));
  const Descriptor ruleset(
      static_cast<int>(::syscall(SYS_landlock_create_ruleset, &attr, sizeof attr.handled_access_fs, 0)));
  if (!ruleset) return 0;
  for (const std::string& path : writable) allow_writing(ruleset.get(), path, attr.handled_access_fs);
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 0;
  return ::syscall(SYS_landlock_restrict_self, ruleset.get(), 0) == 0 ? static_cast<int>(version) : 0;
}

// What a client of a server needs (curl has a pair of sockets for its resolver).
constexpr int kOfClients[] = {SCMP_SYS(socket), SCMP_SYS(socketpair), SCMP_SYS(connect), SCMP_SYS(bind)};

// Programs, the network, other processes, the kernel's own interfaces. io_uring could do most of it unseen.
constexpr int kRefused[] = {SCMP_SYS(execve),
                            SCMP_SYS(execveat),
                            SCMP_SYS(listen),
                            SCMP_SYS(accept),
                            SCMP_SYS(accept4),
                            SCMP_SYS(io_uring_setup),
                            SCMP_SYS(ptrace),
                            SCMP_SYS(process_vm_readv),
                            SCMP_SYS(process_vm_writev),
                            SCMP_SYS(pidfd_getfd),
                            SCMP_SYS(bpf),
                            SCMP_SYS(perf_event_open),
                            SCMP_SYS(userfaultfd),
                            SCMP_SYS(keyctl),
                            SCMP_SYS(add_key),
                            SCMP_SYS(request_key),
                            SCMP_SYS(mount),
                            SCMP_SYS(umount2),
                            SCMP_SYS(pivot_root),
                            SCMP_SYS(chroot),
                            SCMP_SYS(move_mount),
                            SCMP_SYS(open_tree),
                            SCMP_SYS(fsopen),
                            SCMP_SYS(unshare),
                            SCMP_SYS(setns),
                            SCMP_SYS(init_module),
                            SCMP_SYS(finit_module),
                            SCMP_SYS(delete_module),
                            SCMP_SYS(kexec_load),
                            SCMP_SYS(kexec_file_load),
                            SCMP_SYS(reboot),
                            SCMP_SYS(swapon),
                            SCMP_SYS(swapoff),
                            SCMP_SYS(acct),
                            SCMP_SYS(quotactl),
                            SCMP_SYS(settimeofday),
                            SCMP_SYS(clock_settime),
                            SCMP_SYS(adjtimex),
                            SCMP_SYS(clock_adjtime),
                            SCMP_SYS(open_by_handle_at),
                            SCMP_SYS(setuid),
                            SCMP_SYS(setgid),
                            SCMP_SYS(setresuid),
                            SCMP_SYS(setresgid),
                            SCMP_SYS(setreuid),
                            SCMP_SYS(setregid),
                            SCMP_SYS(setgroups),
                            SCMP_SYS(capset),
                            SCMP_SYS(mknod),
                            SCMP_SYS(mknodat),
                            SCMP_SYS(chown),
                            SCMP_SYS(fchownat)};

bool enter_seccomp(Network network) {
  struct Release {
    void operator()(void* filter) const { seccomp_release(filter); }
  };
  const std::unique_ptr<void, Release> filter(seccomp_init(SCMP_ACT_ALLOW));
  if (!filter) return false;
  for (const int call : kRefused) {
    if (seccomp_rule_add(filter.get(), SCMP_ACT_ERRNO(EPERM), call, 0) != 0) return false;
  }
  for (const int call : kOfClients) {
    if (network == Network::kNo && seccomp_rule_add(filter.get(), SCMP_ACT_ERRNO(EPERM), call, 0) != 0)
      return false;
  }
  // Text put into a terminal's input would be the next command of its shell.
  const scmp_arg_cmp is_tiocsti{
      .arg = 1, .op = SCMP_CMP_MASKED_EQ, .datum_a = 0xffffffff, .datum_b = TIOCSTI};
  if (seccomp_rule_add_array(filter.get(), SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1, &is_tiocsti) != 0)
    return false;
  return seccomp_load(filter.get()) == 0;
}

}  // namespace

std::string Sandbox::text() const {
  std::string out = landlock != 0 ? fmt::format("Landlock {}", landlock) : "";
  if (seccomp) out += out.empty() ? "seccomp" : ", seccomp";
  return out.empty() ? "none: this kernel has none" : out;
}

Sandbox enter_sandbox(std::span<const std::string> writable, Network network) {
  Sandbox out;
  if constexpr (kSanitized) return out;  // sanitizers' run times use ptrace and other programs
  out.landlock = enter_landlock(writable);
  out.seccomp = enter_seccomp(network);
  return out;
}

Sandbox try_sandbox() {
  Sandbox out;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return out;
  const Descriptor from(ends[0]);
  Descriptor to(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    const Sandbox there = enter_sandbox({});
    const bool written = ::write(to.get(), &there, sizeof there) == sizeof there;
    ::_exit(written ? 0 : 1);
  }
  to = Descriptor();
  Sandbox there;
  if (child > 0 && ::read(from.get(), &there, sizeof there) == sizeof there) out = there;
  if (child > 0) ::waitpid(child, nullptr, 0);
  return out;
}

}  // namespace asof
