/* What the guest's init, the emulator's plugin and make_capture agree on. C, for all three.
 *
 * The doorbell is a page of the guest's user space at a fixed address. The plugin sees every access of user
 * code to it; arguments stand in its words, a store to word 0 gives the command. */
#ifndef ASOF_BOARD_PROTOCOL_H
#define ASOF_BOARD_PROTOCOL_H

#include <stdint.h>

#define BOARD_DOORBELL 0x13370000ULL
#define BOARD_DOORBELL_BYTES 4096

/* Words of the doorbell page. */
enum board_word {
  BOARD_COMMAND = 0,
  BOARD_ARG1 = 1,
  BOARD_ARG2 = 2,
  BOARD_ARG3 = 3,
  BOARD_MARK = 8,  /* a store here: the CPU's counter, read BOARD_MARK_DELAY instructions before */
  BOARD_NAME = 16, /* name of a file */
};

enum board_command {
  BOARD_RANGE = 1, /* ARG1 kind, ARG2 address, ARG3 bytes: code the plugin has to know */
  BOARD_START,     /* from here on what runs is written down */
  BOARD_STOP,
  BOARD_PAUSE, /* this CPU is not traced from here on */
  BOARD_RESUME,
  BOARD_FILE, /* NAME: what is dumped next goes there */
  BOARD_DUMP, /* ARG1 address (of a page), ARG2 bytes; the guest then reads one byte of every page, in order
               */
};

enum board_range {
  BOARD_ENTRY = 1, /* an exception or interrupt enters here */
  BOARD_WRITER,    /* arm64: code that stores instruction words */
};

/* The log: units of 16 bytes, little-endian. */
struct board_unit {
  uint64_t count; /* instructions begun by all CPUs before this */
  uint32_t block; /* number of the block that begins */
  uint16_t cpu;
  uint16_t kind;
};

enum board_kind {
  BOARD_LOG_BLOCK = 1, /* a block of kernel code begins */
  BOARD_LOG_AWAY,      /* the CPU runs user code, or is paused; only the first of several */
  BOARD_LOG_MARK,      /* one unit follows: counter value, 0 */
  BOARD_LOG_FRAME,     /* two units follow: what stands above the first word that an entry stored */
  BOARD_LOG_STORE,     /* one unit follows: physical address, value of a 4-byte store */
  BOARD_LOG_PAUSE,
  BOARD_LOG_RESUME,
  BOARD_LOG_STOP,
};

/* In the block file, for each block: this, `insns` bytes with the instructions' sizes, the instructions. */
struct board_block {
  uint64_t address;
  uint32_t number;
  uint32_t insns;
};

/* Dump files of the guest. */
struct board_bpf_program { /* bpf.bin: followed by functions x {u64 address, u64 bytes}, then all code */
  uint32_t id, type;
  uint8_t tag[8];
  char name[16];
  uint64_t load_time;
  uint32_t functions, code_bytes;
};

#endif
