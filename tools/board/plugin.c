/* TCG plugin of the simulated boards: writes down which blocks each CPU of an emulated machine executes.
 *
 * The emulator runs with -icount: one thread executes all CPUs in turn, and the guest's counters advance with
 * the number of instructions. So one count of begun instructions orders everything, says how much of a block
 * was executed (the next unit of the log has the count at that time), and is the clock (marks of the
 * guest relate it).
 *
 * The guest gives commands through its doorbell page (protocol.h). What it dumps, and the exception frames it
 * is asked about, are read from its memory, which the emulator keeps in a file that is mapped here too.
 *
 * Debian ships no qemu-plugin.h: the declarations below are those of the documented interface, version 1
 * (QEMU documentation, "TCG Plugins").
 *
 * Options: out=DIRECTORY, ram=FILE, base=PHYSICAL ADDRESS of the memory in that file. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protocol.h"

#define EXPORT __attribute__((visibility("default")))

typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_hwaddr;
typedef struct {
  const char* target_name;
  struct {
    int min, cur;
  } version;
  bool system_emulation;
  union {
    struct {
      int smp_vcpus, max_vcpus;
    } system;
  };
} qemu_info_t;
enum { kNoRegs = 0, kAddU64 = 0, kReads = 1, kWrites = 2, kReadsAndWrites = 3 };
typedef void (*TransCallback)(qemu_plugin_id_t, struct qemu_plugin_tb*);
typedef void (*ExecCallback)(unsigned cpu, void* data);
typedef void (*MemCallback)(unsigned cpu, qemu_plugin_meminfo_t, uint64_t address, void* data);

extern void qemu_plugin_reset(qemu_plugin_id_t, void (*)(qemu_plugin_id_t));
extern void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, TransCallback);
extern void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb*, ExecCallback, int, void*);
extern void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn*, int, void*, uint64_t);
extern void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn*, MemCallback, int, int, void*);
extern void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, void*), void*);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb*);
extern struct qemu_plugin_insn* qemu_plugin_tb_get_insn(const struct qemu_plugin_tb*, size_t);
extern const void* qemu_plugin_insn_data(const struct qemu_plugin_insn*);
extern size_t qemu_plugin_insn_size(const struct qemu_plugin_insn*);
extern uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn*);
extern unsigned qemu_plugin_mem_size_shift(qemu_plugin_meminfo_t);
extern bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t);
extern struct qemu_plugin_hwaddr* qemu_plugin_get_hwaddr(qemu_plugin_meminfo_t, uint64_t);
extern bool qemu_plugin_hwaddr_is_io(const struct qemu_plugin_hwaddr*);
extern uint64_t qemu_plugin_hwaddr_phys_addr(const struct qemu_plugin_hwaddr*);

/* Not of the plugin interface, but exported by the program: see take_turns(). */
extern void* qemu_get_cpu(int index);
extern void cpu_exit(void* cpu);

EXPORT int qemu_plugin_version = 1;

enum { kPage = 4096, kMaxCpus = 8, kMaxRanges = 1024 };
enum { kTurn = 4096 }; /* blocks */

static qemu_plugin_id_t self;
static const char* out_directory;
static const uint8_t* ram;
static uint64_t ram_bytes, ram_base;
static bool arm64;

static struct { uint64_t kind, begin, end; } ranges[kMaxRanges];
static size_t range_count;

static bool recording;
static uint64_t instructions; /* begun since START, by all CPUs */
static bool paused[kMaxCpus];
static struct board_unit last;
static uint32_t block_count;
static FILE *log_file, *block_file, *dump_file;
static uint64_t dump_next, dump_end;

static void die(const char* what) {
  fprintf(stderr, "board plugin: %s\n", what);
  exit(3);
}

static FILE* create(const char* name) {
  char path[512];
  if (strchr(name, '/') != NULL) die("a file name with a directory");
  snprintf(path, sizeof path, "%s/%s", out_directory, name);
  FILE* f = fopen(path, "wb");
  if (f == NULL) die("cannot create a file");
  return f;
}

static void put(FILE* f, const void* bytes, size_t size) {
  if (fwrite(bytes, 1, size, f) != size) die("cannot write");
}

/* Bytes of the guest's memory for an access; NULL when it is a device. */
static const uint8_t* memory_at(qemu_plugin_meminfo_t info, uint64_t address) {
  struct qemu_plugin_hwaddr* hw = qemu_plugin_get_hwaddr(info, address);
  if (hw == NULL || qemu_plugin_hwaddr_is_io(hw)) return NULL;
  const uint64_t at = qemu_plugin_hwaddr_phys_addr(hw) - ram_base;
  return at < ram_bytes ? ram + at : NULL;
}

static bool in_range(uint64_t kind, uint64_t address) {
  for (size_t i = 0; i < range_count; ++i) {
    if (ranges[i].kind == kind && address >= ranges[i].begin && address < ranges[i].end) return true;
  }
  return false;
}

static void unit(uint16_t kind, unsigned cpu, uint32_t block) {
  last = (struct board_unit){instructions, block, (uint16_t)cpu, kind};
  put(log_file, &last, sizeof last);
}

static void payload(uint64_t a, uint64_t b) {
  const uint64_t words[2] = {a, b};
  put(log_file, words, sizeof words);
}

/* With -icount, QEMU 7.2 lets a CPU run up to the next timer event and then gives the others the rest of the
 * time before it: nothing. A CPU that waits for another without PAUSE waits for ever (the kernel does so when
 * it starts a CPU). So each turn is ended after some blocks; the count decides, so that two runs are
 * the same. */
static void take_turns(unsigned cpu) {
  static unsigned blocks;
  if (++blocks < kTurn) return;
  blocks = 0;
  cpu_exit(qemu_get_cpu((int)cpu));
}

static void on_idle_block(unsigned cpu, void* data) {
  (void)data;
  take_turns(cpu);
}

static void on_away(unsigned cpu, void* data) {
  (void)data;
  take_turns(cpu);
  if (last.cpu != cpu || last.kind != BOARD_LOG_AWAY) unit(BOARD_LOG_AWAY, cpu, 0);
}

static void on_block(unsigned cpu, void* data) {
  if (paused[cpu]) {
    on_away(cpu, NULL);
  } else {
    take_turns(cpu);
    /* Iterations of a repeated string instruction are blocks of it alone; one unit represents all of them. */
    if (last.kind == BOARD_LOG_BLOCK && last.cpu == cpu && last.block == (uint32_t)(uintptr_t)data) return;
    unit(BOARD_LOG_BLOCK, cpu, (uint32_t)(uintptr_t)data);
  }
}

/* x86: the words above the first one that an entry pushes hold the interrupted address. */
static void on_entry_store(unsigned cpu, qemu_plugin_meminfo_t info, uint64_t address, void* data) {
  (void)data;
  if (paused[cpu]) return;
  const uint8_t* at = memory_at(info, address);
  uint64_t words[5] = {0};
  size_t size = sizeof words;
  if (at == NULL) die("an exception frame that is not in memory");
  if (kPage - address % kPage < size) size = kPage - address % kPage;
  memcpy(words, at, size);
  unit(BOARD_LOG_FRAME, cpu, 0);
  payload(words[1], words[2]);
  payload(words[3], address);
}

/* arm64: every store of an entry; make_capture finds the saved ELR among them. */
static void on_saved_word(unsigned cpu, qemu_plugin_meminfo_t info, uint64_t address, void* data) {
  (void)data;
  const uint8_t* at = paused[cpu] ? NULL : memory_at(info, address);
  if (at == NULL || address % 8 != 0) return;
  uint64_t word;
  memcpy(&word, at, sizeof word);
  unit(BOARD_LOG_FRAME, cpu, 0);
  payload(address, word);
  payload(0, 0);
}

/* arm64: instruction words that are stored through an alias; the physical address shows where. */
static void on_word_store(unsigned cpu, qemu_plugin_meminfo_t info, uint64_t address, void* data) {
  (void)data;
  const uint8_t* at = qemu_plugin_mem_size_shift(info) == 2 ? memory_at(info, address) : NULL;
  if (at == NULL || address % 4 != 0) return;
  uint32_t word;
  memcpy(&word, at, sizeof word);
  unit(BOARD_LOG_STORE, cpu, 0);
  payload((uint64_t)(at - ram) + ram_base, word);
}

static void register_all(qemu_plugin_id_t id);

static void command(unsigned cpu, const uint64_t* words) {
  switch (words[BOARD_COMMAND]) {
    case BOARD_RANGE:
      if (range_count == kMaxRanges) die("too many ranges");
      ranges[range_count].kind = words[BOARD_ARG1];
      ranges[range_count].begin = words[BOARD_ARG2];
      ranges[range_count++].end = words[BOARD_ARG2] + words[BOARD_ARG3];
      return;
    case BOARD_START:
      log_file = create("log");
      block_file = create("blocks");
      setvbuf(log_file, NULL, _IOFBF, 1 << 20);
      recording = true;
      qemu_plugin_reset(self, register_all);
      return;
    case BOARD_STOP:
      unit(BOARD_LOG_STOP, cpu, 0);
      recording = false;
      fclose(log_file);
      fclose(block_file);
      qemu_plugin_reset(self, register_all);
      return;
    case BOARD_PAUSE:
    case BOARD_RESUME:
      paused[cpu] = words[BOARD_COMMAND] == BOARD_PAUSE;
      if (recording) unit(paused[cpu] ? BOARD_LOG_PAUSE : BOARD_LOG_RESUME, cpu, 0);
      return;
    case BOARD_FILE:
      if (dump_file != NULL) fclose(dump_file);
      dump_file = NULL;
      if (words[BOARD_NAME] != 0) {
        char name[64] = {0};
        memcpy(name, words + BOARD_NAME, sizeof name - 1);
        dump_file = create(name);
      }
      return;
    case BOARD_DUMP:
      dump_next = words[BOARD_ARG1];
      dump_end = dump_next + words[BOARD_ARG2];
      return;
    default:
      die("an unknown command");
  }
}

/* Every access of user code, for the doorbell and for dumps. */
static void on_user_access(unsigned cpu, qemu_plugin_meminfo_t info, uint64_t address, void* data) {
  (void)data;
  if (address - BOARD_DOORBELL < BOARD_DOORBELL_BYTES) {
    const uint8_t* at = memory_at(info, address);
    if (!qemu_plugin_mem_is_store(info) || at == NULL) return;
    if (address == BOARD_DOORBELL + 8 * BOARD_MARK) {
      if (!recording) return;
      unit(BOARD_LOG_MARK, cpu, 0);
      uint64_t value;
      memcpy(&value, at, sizeof value);
      payload(value, 0);
    } else if (address == BOARD_DOORBELL) {
      uint64_t words[BOARD_NAME + 8];
      memcpy(words, at, sizeof words);
      command(cpu, words);
    }
    return;
  }
  if (dump_next < dump_end && address == dump_next && !qemu_plugin_mem_is_store(info)) {
    const uint8_t* at = memory_at(info, address);
    const uint64_t left = dump_end - dump_next, size = left < kPage ? left : kPage;
    if (at == NULL || dump_file == NULL) die("a page to dump is not in memory");
    put(dump_file, at, size);
    dump_next += size;
  }
}

static void describe(struct qemu_plugin_tb* tb, size_t n, uint64_t address) {
  const struct board_block head = {address, block_count, (uint32_t)n};
  put(block_file, &head, sizeof head);
  for (size_t i = 0; i < n; ++i) {
    const uint8_t size = (uint8_t)qemu_plugin_insn_size(qemu_plugin_tb_get_insn(tb, i));
    put(block_file, &size, 1);
  }
  for (size_t i = 0; i < n; ++i) {
    struct qemu_plugin_insn* insn = qemu_plugin_tb_get_insn(tb, i);
    put(block_file, qemu_plugin_insn_data(insn), qemu_plugin_insn_size(insn));
  }
}

static void on_translate(qemu_plugin_id_t id, struct qemu_plugin_tb* tb) {
  (void)id;
  const size_t n = qemu_plugin_tb_n_insns(tb);
  const uint64_t address = qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(tb, 0));
  const bool kernel = address >> 63 != 0;
  if (!kernel) {
    for (size_t i = 0; i < n; ++i) {
      qemu_plugin_register_vcpu_mem_cb(qemu_plugin_tb_get_insn(tb, i), on_user_access, kNoRegs,
                                       kReadsAndWrites, NULL);
    }
  }
  if (!recording) {
    qemu_plugin_register_vcpu_tb_exec_cb(tb, on_idle_block, kNoRegs, NULL);
    return;
  }
  if (kernel) {
    describe(tb, n, address);
    qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, kNoRegs, (void*)(uintptr_t)block_count);
    ++block_count;
  } else {
    qemu_plugin_register_vcpu_tb_exec_cb(tb, on_away, kNoRegs, NULL);
  }
  for (size_t i = 0; i < n; ++i) {
    struct qemu_plugin_insn* insn = qemu_plugin_tb_get_insn(tb, i);
    qemu_plugin_register_vcpu_insn_exec_inline(insn, kAddU64, &instructions, 1);
    if (!kernel) continue;
    if (in_range(BOARD_ENTRY, address))
      qemu_plugin_register_vcpu_mem_cb(insn, arm64 ? on_saved_word : on_entry_store, kNoRegs, kWrites, NULL);
    if (in_range(BOARD_WRITER, address))
      qemu_plugin_register_vcpu_mem_cb(insn, on_word_store, kNoRegs, kWrites, NULL);
  }
}

static void register_all(qemu_plugin_id_t id) { qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate); }

static void map_ram(const char* path) {
  const int fd = open(path, O_RDONLY);
  struct stat st;
  if (fd < 0 || fstat(fd, &st) != 0) die("cannot open the file with the guest's memory");
  ram_bytes = (uint64_t)st.st_size;
  ram = mmap(NULL, ram_bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (ram == MAP_FAILED) die("cannot map the guest's memory");
  close(fd);
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t* info, int argc, char** argv) {
  self = id;
  arm64 = strcmp(info->target_name, "aarch64") == 0;
  for (int i = 0; i < argc; ++i) {
    if (strncmp(argv[i], "out=", 4) == 0) out_directory = strdup(argv[i] + 4);
    if (strncmp(argv[i], "ram=", 4) == 0) map_ram(argv[i] + 4);
    if (strncmp(argv[i], "base=", 5) == 0) ram_base = strtoull(argv[i] + 5, NULL, 0);
  }
  if (out_directory == NULL || ram == NULL || !info->system_emulation || info->system.max_vcpus > kMaxCpus) {
    fprintf(stderr, "board plugin: needs out=, ram= and a machine of at most %d CPUs\n", kMaxCpus);
    return -1;
  }
  register_all(id);
  return 0;
}
