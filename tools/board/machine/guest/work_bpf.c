/* BPF: tail calls whose map changes while they run, XDP programs and their dispatcher, trampolines at a function's entry. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tools/record/toggle.h"
#include "work.h"

const char* toggle_root = ""; /* for toggle_files.c: the real /proc and /sys */

static int sys_bpf(int command, union bpf_attr* attr) {
  return (int)syscall(SYS_bpf, command, attr, sizeof *attr);
}

static struct bpf_insn op(uint8_t code, uint8_t to, uint8_t from, int16_t offset, int32_t imm) {
  return (struct bpf_insn){.code = code,
                           .dst_reg = (uint8_t)(to & 15),
                           .src_reg = (uint8_t)(from & 15),
                           .off = offset,
                           .imm = imm};
}

struct program {
  unsigned type, attach;
  uint32_t btf_id;
  unsigned count;
  struct bpf_insn code[128];
};

static void add(struct program* p, struct bpf_insn i) { p->code[p->count++] = i; }

/* Some arithmetic on r7, whose amount and constants are other ones each time. */
static void add_work(struct program* p) {
  add(p, op(BPF_ALU64 | BPF_MOV | BPF_K, 7, 0, 0, (int32_t)work_random()));
  for (unsigned i = 0, n = 2 + work_random() % 20; i < n; ++i) {
    add(p, op(BPF_ALU64 | BPF_XOR | BPF_K, 7, 0, 0, (int32_t)work_random()));
    if (i % 4 == 0) add(p, op(BPF_JMP | BPF_JSET | BPF_K, 7, 0, 1, 1 << i % 8));
    add(p, op(BPF_ALU64 | BPF_ADD | BPF_K, 7, 0, 0, (int32_t)i));
  }
}

static void add_end(struct program* p, int32_t result) {
  add(p, op(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, result));
  add(p, op(BPF_JMP | BPF_EXIT, 0, 0, 0, 0));
}

static int load(const struct program* p, const char* name) {
  union bpf_attr attr;
  memset(&attr, 0, sizeof attr);
  attr.prog_type = p->type;
  attr.expected_attach_type = p->attach;
  attr.attach_btf_id = p->btf_id;
  attr.insns = (uint64_t)(uintptr_t)p->code;
  attr.insn_cnt = p->count;
  attr.license = (uint64_t)(uintptr_t) "GPL";
  memcpy(attr.prog_name, name, strlen(name));
  return sys_bpf(BPF_PROG_LOAD, &attr);
}

static int set_slot(int map, uint32_t slot, int program) {
  union bpf_attr attr;
  memset(&attr, 0, sizeof attr);
  attr.map_fd = (uint32_t)map;
  attr.key = (uint64_t)(uintptr_t)&slot;
  attr.value = (uint64_t)(uintptr_t)&program;
  return sys_bpf(program < 0 ? BPF_MAP_DELETE_ELEM : BPF_MAP_UPDATE_ELEM, &attr);
}

/* A socket filter that calls slot `next` of the map (-1: none) and then, if that is empty, returns. */
static int load_link(int map, int next) {
  struct program p = {.type = BPF_PROG_TYPE_SOCKET_FILTER};
  add(&p, op(BPF_ALU64 | BPF_MOV | BPF_X, 6, 1, 0, 0));
  add_work(&p);
  if (next >= 0) {
    add(&p, op(BPF_ALU64 | BPF_MOV | BPF_X, 1, 6, 0, 0));
    add(&p, op(BPF_LD | BPF_DW | BPF_IMM, 2, BPF_PSEUDO_MAP_FD, 0, map));
    add(&p, op(0, 0, 0, 0, 0));
    add(&p, op(BPF_ALU64 | BPF_MOV | BPF_K, 3, 0, 0, next));
    add(&p, op(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_tail_call));
  }
  add_end(&p, 0xffff);
  return load(&p, "link");
}

static void pass(const int sockets[2], unsigned count) {
  char bytes[64] = {0};
  for (unsigned i = 0; i < count; ++i) {
    if (write(sockets[0], bytes, sizeof bytes) > 0 && read(sockets[1], bytes, sizeof bytes) < 0) return;
  }
}

int work_tailcall(void) {
  enum { kSlots = 4 };
  union bpf_attr attr = {
      .map_type = BPF_MAP_TYPE_PROG_ARRAY, .key_size = 4, .value_size = 4, .max_entries = kSlots};
  const int map = sys_bpf(BPF_MAP_CREATE, &attr);
  if (map < 0) return work_failed("BPF_MAP_CREATE");
  int links[kSlots], other[kSlots], sockets[2];
  for (int i = 0; i < kSlots; ++i) {
    links[i] = load_link(map, i + 1 < kSlots ? i + 1 : -1);
    other[i] = load_link(map, i + 2 < kSlots ? i + 2 : -1);
    if (links[i] < 0 || other[i] < 0) return work_failed("BPF_PROG_LOAD");
  }
  const int first = load_link(map, 0);
  if (first < 0) return work_failed("BPF_PROG_LOAD");
  if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets) != 0)
    return work_failed("socketpair");
  if (setsockopt(sockets[1], SOL_SOCKET, SO_ATTACH_BPF, &first, sizeof first) != 0)
    return work_failed("SO_ATTACH_BPF");
  for (unsigned round = 0; round < 24; ++round) {
    const uint32_t slot = work_random() % kSlots, what = work_random() % 3;
    if (set_slot(map, slot, what == 0 ? -1 : what == 1 ? links[slot] : other[slot]) != 0 && what != 0)
      return work_failed("BPF_MAP_UPDATE_ELEM");
    pass(sockets, 3);
  }
  return 0;
}

/* XDP programs on the loopback device one after the other, several at a time on two devices: the kernel's dispatcher is
 * rewritten for each set of programs. */
static int load_xdp(void) {
  struct program p = {.type = BPF_PROG_TYPE_XDP, .attach = BPF_XDP};
  add_work(&p);
  add_end(&p, XDP_PASS);
  return load(&p, "xdp");
}

static int attach_xdp(int program, unsigned device) {
  union bpf_attr attr;
  memset(&attr, 0, sizeof attr);
  attr.link_create.prog_fd = (uint32_t)program;
  attr.link_create.target_ifindex = device;
  attr.link_create.attach_type = BPF_XDP;
  attr.link_create.flags = 2; /* XDP_FLAGS_SKB_MODE */
  return sys_bpf(BPF_LINK_CREATE, &attr);
}

static int test_run(int program) {
  static char packet[64];
  union bpf_attr attr;
  memset(&attr, 0, sizeof attr);
  attr.test.prog_fd = (uint32_t)program;
  attr.test.repeat = 8;
  attr.test.data_in = (uint64_t)(uintptr_t)packet;
  attr.test.data_size_in = sizeof packet;
  return sys_bpf(BPF_PROG_TEST_RUN, &attr);
}

int work_xdp(void) {
  const unsigned loopback = if_nametoindex("lo"), dummy = if_nametoindex("dummy0");
  const int from = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0),
            to = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  struct sockaddr_in at = {
      .sin_family = AF_INET, .sin_port = htons(7777), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  if (bind(to, (struct sockaddr*)&at, sizeof at) != 0) return work_failed("bind");
  int second = -1;
  for (unsigned round = 0; round < 8; ++round) {
    const int program = load_xdp();
    if (program < 0) return work_failed("BPF_PROG_LOAD");
    const int link = attach_xdp(program, loopback);
    if (link < 0) return work_failed("BPF_LINK_CREATE");
    if (dummy != 0 && round % 3 == 1) second = attach_xdp(program, dummy);
    char bytes[64] = {0};
    for (unsigned i = 0; i < 4; ++i) {
      if (sendto(from, bytes, sizeof bytes, 0, (struct sockaddr*)&at, sizeof at) < 0)
        return work_failed("sendto");
      (void)!read(to, bytes, sizeof bytes);
    }
    test_run(program);
    close(link);
    if (round % 3 == 2 && second >= 0) close(second);
    close(program);
  }
  return 0;
}

static int load_trace(unsigned attach, uint32_t btf_id) {
  struct program p = {.type = BPF_PROG_TYPE_TRACING, .attach = attach, .btf_id = btf_id};
  add_work(&p);
  add_end(&p, 0);
  return load(&p, "trace");
}

/* fentry and fexit programs on a busy function: each number of them has another trampoline. */
int work_trampoline(void) {
  const uint32_t id = toggle_btf_function("vfs_read");
  if (id == 0) return work_failed("BTF of vfs_read");
  int programs[4], links[4];
  for (unsigned i = 0; i < 4; ++i) {
    programs[i] = load_trace(i % 2 == 0 ? BPF_TRACE_FENTRY : BPF_TRACE_FEXIT, id);
    if (programs[i] < 0) return work_failed("BPF_PROG_LOAD");
    links[i] = -1;
  }
  const int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  for (unsigned round = 0; round < 16; ++round) {
    const unsigned i = work_random() % 4;
    if (links[i] >= 0) {
      close(links[i]);
      links[i] = -1;
    } else {
      union bpf_attr attr;
      memset(&attr, 0, sizeof attr);
      attr.raw_tracepoint.prog_fd = (uint32_t)programs[i];
      links[i] = sys_bpf(BPF_RAW_TRACEPOINT_OPEN, &attr);
      if (links[i] < 0) return work_failed("BPF_RAW_TRACEPOINT_OPEN");
    }
    char bytes[64];
    for (unsigned k = 0; k < 4; ++k) (void)!read(zero, bytes, sizeof bytes);
  }
  return 0;
}
