/* BPF programs that are loaded and freed: socket filters of random length, which the allocator puts where
 * others were before, and a program at a function's entry, for which the kernel makes a trampoline. Needs
 * bpf(2) and linux/bpf.h, no library. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "toggle.h"

#ifndef SO_ATTACH_BPF
#define SO_ATTACH_BPF 50
#endif

enum { kMostInstructions = 200 };

static int sys_bpf(int command, union bpf_attr* attr) {
  return (int)syscall(SYS_bpf, command, attr, sizeof *attr);
}

static struct bpf_insn instruction(uint8_t code, uint8_t to, uint8_t from, int32_t imm) {
  const struct bpf_insn i = {.code = code, .dst_reg = to & 15U, .src_reg = from & 15U, .imm = imm};
  return i;
}

/* r0 = something, `length` operations on it, exit: arithmetic that no verifier rejects, other code each time.
 */
static unsigned make_program(struct bpf_insn* out, unsigned length, int result) {
  unsigned n = 0;
  out[n++] = instruction(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, (int32_t)toggle_random());
  for (unsigned i = 0; i < length; ++i) {
    static const uint8_t kOps[] = {BPF_ADD, BPF_SUB, BPF_XOR, BPF_OR, BPF_AND, BPF_MUL};
    out[n++] = instruction((uint8_t)(BPF_ALU64 | BPF_K | kOps[toggle_random() % sizeof kOps]), 0, 0,
                           (int32_t)toggle_random());
  }
  out[n++] = instruction(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, result);
  out[n++] = instruction(BPF_JMP | BPF_EXIT, 0, 0, 0);
  return n;
}

static int load(unsigned type, const char* name, unsigned length, int result, uint32_t attach,
                uint32_t btf_id) {
  static const char kLicense[] = "GPL";
  struct bpf_insn program[kMostInstructions + 4];
  union bpf_attr attr;
  memset(&attr, 0, sizeof attr);
  attr.prog_type = type;
  attr.insns = (uint64_t)(uintptr_t)program;
  attr.insn_cnt = make_program(program, length, result);
  attr.license = (uint64_t)(uintptr_t)kLicense;
  attr.expected_attach_type = attach;
  attr.attach_btf_id = btf_id;
  memcpy(attr.prog_name, name, strlen(name));
  return sys_bpf(BPF_PROG_LOAD, &attr);
}

/* Two sockets; the program sees what is sent from one to the other. */
static int set_filter(struct toggle* t, int on) {
  if (!on) {
    close(t->fd);
    close(t->link_fd);
    return 0;
  }
  int sockets[2];
  const int program =
      load(BPF_PROG_TYPE_SOCKET_FILTER, t->name, 4 + toggle_random() % (kMostInstructions - 4), 65535, 0, 0);
  if (program < 0) return errno;
  if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets) != 0) {
    const int error = errno;
    close(program);
    return error;
  }
  const int error =
      setsockopt(sockets[1], SOL_SOCKET, SO_ATTACH_BPF, &program, sizeof program) == 0 ? 0 : errno;
  close(program); /* the socket keeps it */
  if (error != 0) {
    close(sockets[0]);
    close(sockets[1]);
    return error;
  }
  t->fd = sockets[0];
  t->link_fd = sockets[1];
  for (int i = 0; i < 8; ++i) {
    char bytes[32] = {0};
    if (write(t->fd, bytes, sizeof bytes) < 0 || read(t->link_fd, bytes, sizeof bytes) < 0) break;
  }
  return 0;
}

static int set_fentry(struct toggle* t, int on) {
  if (!on) {
    close(t->link_fd);
    close(t->fd);
    return 0;
  }
  t->fd =
      load(BPF_PROG_TYPE_TRACING, "asof_fentry", 8 + toggle_random() % 64, 0, BPF_TRACE_FENTRY, t->number);
  if (t->fd < 0) return errno;
  union bpf_attr attr;
  memset(&attr, 0, sizeof attr);
  attr.raw_tracepoint.prog_fd = (uint32_t)t->fd;
  t->link_fd = sys_bpf(BPF_RAW_TRACEPOINT_OPEN, &attr);
  if (t->link_fd >= 0) return 0;
  const int error = errno;
  close(t->fd);
  return error;
}

size_t toggle_add_bpf(struct toggle* list, size_t count, size_t room) {
  if (toggle_root[0] != '\0') return count; /* bpf(2) knows of no other root */
  const int probe = load(BPF_PROG_TYPE_SOCKET_FILTER, "asof_probe", 4, 0, 0, 0);
  if (probe < 0) return count;
  close(probe);
  for (unsigned i = 0; i < 5 && count < room; ++i) {
    struct toggle* t = &list[count++];
    t->kind = "bpf";
    snprintf(t->name, sizeof t->name, "asof_filter%u", i);
    t->set = set_filter;
  }
  const uint32_t id = toggle_btf_function("vfs_read");
  if (id == 0 || count == room) return count;
  struct toggle* t = &list[count];
  t->kind = "bpf";
  snprintf(t->name, sizeof t->name, "fentry vfs_read");
  t->set = set_fentry;
  t->number = id;
  t->hold_ms = 20;
  /* Verifier, BTF and trampolines are all optional parts of a kernel: try once. */
  if (set_fentry(t, 1) != 0) return count;
  set_fentry(t, 0);
  return count + 1;
}
