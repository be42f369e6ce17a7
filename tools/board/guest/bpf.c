/* BPF socket filters of several lengths. Their machine code is read right after they are loaded, as the perf
 * tool's side-band thread does. */
#include <linux/bpf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guest.h"

static uint8_t* kept;
static size_t kept_bytes;

static struct bpf_insn op(uint8_t code, uint8_t dst, uint8_t src, int16_t off, int32_t imm) {
  return (struct bpf_insn){
      .code = code, .dst_reg = (uint8_t)(dst & 15), .src_reg = (uint8_t)(src & 15), .off = off, .imm = imm};
}

/* All shapes accept every packet; they differ in what they compute before. */
static size_t assemble(enum bpf_shape shape, uint32_t constant, struct bpf_insn* out) {
  size_t n = 0;
  const int32_t c = (int32_t)constant;
  out[n++] = op(BPF_ALU64 | BPF_MOV | BPF_X, 6, 1, 0, 0);
  out[n++] = op(BPF_LDX | BPF_MEM | BPF_W, 7, 6, 0, 0); /* skb->len */
  if (shape == kBpfCount) {
    out[n++] = op(BPF_JMP | BPF_JGT | BPF_K, 7, 0, 1, c & 63);
    out[n++] = op(BPF_ALU64 | BPF_ADD | BPF_K, 7, 0, 0, c);
  } else if (shape == kBpfLong) {
    for (int i = 0; i < 24; ++i) {
      out[n++] = op(BPF_JMP | BPF_JSET | BPF_K, 7, 0, 1, 1 << (i % 7));
      out[n++] = op(BPF_ALU64 | BPF_XOR | BPF_K, 7, 0, 0, c + i);
    }
  } else {
    out[n++] = op(BPF_ALU64 | BPF_ADD | BPF_K, 7, 0, 0, c);
  }
  out[n++] = op(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 0xffff);
  out[n++] = op(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
  return n;
}

static void keep(const void* bytes, size_t size) {
  kept = realloc(kept, kept_bytes + size);
  if (kept == NULL) die("no memory");
  memcpy(kept + kept_bytes, bytes, size);
  kept_bytes += size;
}

static void keep_code(int fd) {
  static uint8_t code[1 << 16];
  uint64_t addresses[8];
  uint32_t lengths[8];
  struct bpf_prog_info info = {.jited_prog_insns = (uint64_t)code,
                               .jited_prog_len = sizeof code,
                               .jited_ksyms = (uint64_t)addresses,
                               .nr_jited_ksyms = 8,
                               .jited_func_lens = (uint64_t)lengths,
                               .nr_jited_func_lens = 8};
  union bpf_attr attr = {.info = {.bpf_fd = (uint32_t)fd, .info_len = sizeof info, .info = (uint64_t)&info}};
  if (syscall(SYS_bpf, BPF_OBJ_GET_INFO_BY_FD, &attr, sizeof attr) != 0)
    die("no information about a BPF program");
  if (info.jited_prog_len == 0 || info.nr_jited_ksyms != info.nr_jited_func_lens || info.nr_jited_ksyms > 8)
    die("BPF code that is not to be had");
  struct board_bpf_program p = {.id = info.id,
                                .type = info.type,
                                .load_time = info.load_time,
                                .functions = info.nr_jited_ksyms,
                                .code_bytes = info.jited_prog_len};
  memcpy(p.tag, info.tag, sizeof p.tag);
  memcpy(p.name, info.name, sizeof p.name);
  keep(&p, sizeof p);
  for (uint32_t i = 0; i < p.functions; ++i) {
    const uint64_t function[2] = {addresses[i], lengths[i]};
    keep(function, sizeof function);
  }
  keep(code, p.code_bytes);
  say("BPF program %u at %llx, %u bytes", p.id, (unsigned long long)addresses[0], p.code_bytes);
}

int bpf_load(enum bpf_shape shape, uint32_t constant) {
  struct bpf_insn insns[64];
  union bpf_attr attr = {
      .prog_type = BPF_PROG_TYPE_SOCKET_FILTER, .insns = (uint64_t)insns, .license = (uint64_t) "GPL"};
  attr.insn_cnt = (uint32_t)assemble(shape, constant, insns);
  memcpy(attr.prog_name, "board", 6);
  const int fd = (int)syscall(SYS_bpf, BPF_PROG_LOAD, &attr, sizeof attr);
  if (fd < 0) die("a BPF program is refused");
  keep_code(fd);
  return fd;
}

void bpf_attach(int socket, int program) {
  if (setsockopt(socket, SOL_SOCKET, SO_ATTACH_BPF, &program, sizeof program) != 0) die("SO_ATTACH_BPF");
}

void bpf_detach(int socket) {
  const int none = 0;
  if (setsockopt(socket, SOL_SOCKET, SO_DETACH_BPF, &none, sizeof none) != 0) die("SO_DETACH_BPF");
}

void bpf_dump(void) {
  file_begin("bpf.bin");
  file_put(kept, kept_bytes);
  file_end();
}
