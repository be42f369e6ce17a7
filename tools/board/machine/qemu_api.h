// The part of QEMU's plugin interface that the plugins use: own declarations of version 7 (QEMU 11.1), after the
// interface's documentation, because Debian ships no header for it. Every callback has user data as its last
// parameter. The functions are in the QEMU process that loads the plugin; so are the three of GLib's, whose arrays
// the interface passes.
#pragma once
#include <cstddef>
#include <cstdint>

#define ASOF_PLUGIN_EXPORT __attribute__((visibility("default")))

extern "C" {

struct GArray {
  char* data;
  unsigned len;
};
struct GByteArray {
  uint8_t* data;
  unsigned len;
};
GByteArray* g_byte_array_new();
GByteArray* g_byte_array_set_size(GByteArray*, unsigned);
char* g_array_free(GArray*, int free_elements);

using qemu_plugin_id_t = uint64_t;
struct qemu_info_t {
  const char* target_name;
  struct {
    int min, cur;
  } version;
  bool system_emulation;
  struct {
    int smp_vcpus, max_vcpus;
  } system;
};

enum qemu_plugin_cb_flags {
  QEMU_PLUGIN_CB_NO_REGS,
  QEMU_PLUGIN_CB_R_REGS,
  QEMU_PLUGIN_CB_RW_REGS,
  QEMU_PLUGIN_CB_RW_REGS_PC,
};
enum qemu_plugin_mem_rw { QEMU_PLUGIN_MEM_R = 1, QEMU_PLUGIN_MEM_W, QEMU_PLUGIN_MEM_RW };
enum qemu_plugin_discon_type {
  QEMU_PLUGIN_DISCON_INTERRUPT = 1,
  QEMU_PLUGIN_DISCON_EXCEPTION = 2,
  QEMU_PLUGIN_DISCON_HOSTCALL = 4,
  QEMU_PLUGIN_DISCON_ALL = -1,
};
enum qemu_plugin_cond {
  QEMU_PLUGIN_COND_NEVER,
  QEMU_PLUGIN_COND_ALWAYS,
  QEMU_PLUGIN_COND_EQ,
  QEMU_PLUGIN_COND_NE,
};
enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64, QEMU_PLUGIN_INLINE_STORE_U64 };
enum qemu_plugin_mem_value_type {
  QEMU_PLUGIN_MEM_VALUE_U8,
  QEMU_PLUGIN_MEM_VALUE_U16,
  QEMU_PLUGIN_MEM_VALUE_U32,
  QEMU_PLUGIN_MEM_VALUE_U64,
  QEMU_PLUGIN_MEM_VALUE_U128,
};
struct qemu_plugin_mem_value {
  qemu_plugin_mem_value_type type;
  union {
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    struct {
      uint64_t low, high;
    } u128;
  } data;
};

struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_register;
struct qemu_plugin_scoreboard;
struct qemu_plugin_hwaddr;
using qemu_plugin_meminfo_t = uint32_t;
struct qemu_plugin_u64 {
  qemu_plugin_scoreboard* score;
  size_t offset;
};
struct qemu_plugin_reg_descriptor {
  qemu_plugin_register* handle;
  const char* name;
  const char* feature;
  bool is_readonly;
};

using qemu_plugin_vcpu_cb = void (*)(unsigned vcpu, void* data);
using qemu_plugin_tb_trans_cb = void (*)(qemu_plugin_tb*, void* data);
using qemu_plugin_discon_cb = void (*)(unsigned vcpu, qemu_plugin_discon_type, uint64_t from, uint64_t to,
                                       void* data);
using qemu_plugin_mem_cb = void (*)(unsigned vcpu, qemu_plugin_meminfo_t, uint64_t address, void* data);
using qemu_plugin_cb = void (*)(void* data);

void qemu_plugin_reset(qemu_plugin_id_t, qemu_plugin_cb, void*);
void qemu_plugin_register_vcpu_init_cb(qemu_plugin_id_t, qemu_plugin_vcpu_cb, void*);
void qemu_plugin_register_vcpu_idle_cb(qemu_plugin_id_t, qemu_plugin_vcpu_cb, void*);
void qemu_plugin_register_vcpu_resume_cb(qemu_plugin_id_t, qemu_plugin_vcpu_cb, void*);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, qemu_plugin_tb_trans_cb, void*);
void qemu_plugin_register_vcpu_discon_cb(qemu_plugin_id_t, qemu_plugin_discon_type, qemu_plugin_discon_cb,
                                         void*);
void qemu_plugin_register_flush_cb(qemu_plugin_id_t, qemu_plugin_cb, void*);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, qemu_plugin_cb, void*);

void qemu_plugin_register_vcpu_tb_exec_cb(qemu_plugin_tb*, qemu_plugin_vcpu_cb, qemu_plugin_cb_flags, void*);
void qemu_plugin_register_vcpu_tb_exec_cond_cb(qemu_plugin_tb*, qemu_plugin_vcpu_cb, qemu_plugin_cb_flags,
                                               qemu_plugin_cond, qemu_plugin_u64, uint64_t value, void*);
void qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(qemu_plugin_tb*, qemu_plugin_op, qemu_plugin_u64,
                                                       uint64_t);
void qemu_plugin_register_vcpu_insn_exec_cb(qemu_plugin_insn*, qemu_plugin_vcpu_cb, qemu_plugin_cb_flags,
                                            void*);
void qemu_plugin_register_vcpu_insn_exec_cond_cb(qemu_plugin_insn*, qemu_plugin_vcpu_cb, qemu_plugin_cb_flags,
                                                 qemu_plugin_cond, qemu_plugin_u64, uint64_t value, void*);
void qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(qemu_plugin_insn*, qemu_plugin_op, qemu_plugin_u64,
                                                         uint64_t);
void qemu_plugin_register_vcpu_mem_cb(qemu_plugin_insn*, qemu_plugin_mem_cb, qemu_plugin_cb_flags,
                                      qemu_plugin_mem_rw, void*);

size_t qemu_plugin_tb_n_insns(const qemu_plugin_tb*);
uint64_t qemu_plugin_tb_vaddr(const qemu_plugin_tb*);
qemu_plugin_insn* qemu_plugin_tb_get_insn(const qemu_plugin_tb*, size_t);
size_t qemu_plugin_insn_data(const qemu_plugin_insn*, void*, size_t);
size_t qemu_plugin_insn_size(const qemu_plugin_insn*);
uint64_t qemu_plugin_insn_vaddr(const qemu_plugin_insn*);

unsigned qemu_plugin_mem_size_shift(qemu_plugin_meminfo_t);
bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t);
qemu_plugin_mem_value qemu_plugin_mem_get_value(qemu_plugin_meminfo_t);
qemu_plugin_hwaddr* qemu_plugin_get_hwaddr(qemu_plugin_meminfo_t, uint64_t address);
bool qemu_plugin_hwaddr_is_io(const qemu_plugin_hwaddr*);
uint64_t qemu_plugin_hwaddr_phys_addr(const qemu_plugin_hwaddr*);

int qemu_plugin_num_vcpus();  // that were started until now
GArray* qemu_plugin_get_registers();
bool qemu_plugin_read_register(qemu_plugin_register*, GByteArray*);
bool qemu_plugin_write_register(qemu_plugin_register*, GByteArray*);
[[noreturn]] void qemu_plugin_set_pc(uint64_t);

bool qemu_plugin_read_memory_vaddr(uint64_t address, GByteArray*, size_t);
bool qemu_plugin_write_memory_vaddr(uint64_t address, GByteArray*);
int qemu_plugin_read_memory_hwaddr(uint64_t address, GByteArray*, size_t);
int qemu_plugin_write_memory_hwaddr(uint64_t address, GByteArray*);
bool qemu_plugin_translate_vaddr(uint64_t address, uint64_t* physical);

qemu_plugin_scoreboard* qemu_plugin_scoreboard_new(size_t);
void* qemu_plugin_scoreboard_find(qemu_plugin_scoreboard*, unsigned vcpu);
void qemu_plugin_u64_set(qemu_plugin_u64, unsigned vcpu, uint64_t);
uint64_t qemu_plugin_u64_get(qemu_plugin_u64, unsigned vcpu);
uint64_t qemu_plugin_u64_sum(qemu_plugin_u64);

}  // extern "C"
