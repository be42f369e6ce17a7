/* asof for C, and for whatever calls C. The C++ library (asof/asof.h) says more about each thing.
 *
 * Rules
 *   - Handles are opaque, and none but those of functions that close or free may be NULL; closing NULL does
 * nothing.
 *   - Functions that can fail return NULL or ASOF_FAILED and, where `error` is not NULL, set *error to an
 * error that asof_error_free() frees; else they leave *error as it is.
 *   - Structures begin with their size, which the caller sets ({.size = sizeof x}, or an ASOF_..._INIT
 * macro): the library reads and writes no more. New members come at the end, so older callers go on working.
 *   - Strings are UTF-8 as recorded, end with a zero, and belong to the library.
 *   - Times are nanoseconds of perf's clock. ASOF_TIME_MIN: unknown, or since always. ASOF_TIME_MAX: for
 * ever.
 *   - A capture may be used by any number of threads at once; a reader by one thread at a time. A reader
 * keeps the capture's data alive: they may be closed in any order.
 *   - No call writes to standard output or standard error, or ends the process, whatever the input.
 */
#ifndef ASOF_ASOF_C_H
#define ASOF_ASOF_C_H

#include <stddef.h>
#include <stdint.h>

#include "asof/export.h"
#include "asof/version.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ASOF_TIME_MIN INT64_MIN
#define ASOF_TIME_MAX INT64_MAX
#define ASOF_KERNEL_SPACE 0u

typedef struct asof_capture asof_capture;
typedef struct asof_error asof_error;
typedef struct asof_reader asof_reader;

typedef enum asof_status {
  ASOF_FAILED = -1,
  ASOF_END = 0, /* no more records */
  ASOF_OK = 1
} asof_status;

/* "0.2.0", of the library that is loaded. Thread-safe. */
ASOF_EXPORT const char* asof_version(void);

/* ---- errors ---- */

ASOF_EXPORT const char* asof_error_code(const asof_error* error);   /* stable, "E-FILE-003"; docs/errors.md */
ASOF_EXPORT const char* asof_error_where(const asof_error* error);  /* file or object; may be "" */
ASOF_EXPORT const char* asof_error_reason(const asof_error* error); /* one line of English, not stable */
ASOF_EXPORT const char* asof_error_hint(const asof_error* error);   /* what can be done; may be "" */
/* In bytes, in asof_error_where(); UINT64_MAX: none. */
ASOF_EXPORT uint64_t asof_error_offset(const asof_error* error);
ASOF_EXPORT void asof_error_free(asof_error* error);

/* ---- captures ---- */

typedef struct asof_open_options {
  size_t size;
  /* Paths; NULL: perf's usual places. */
  const char* symfs; /* files are looked for below it */
  const char* vmlinux;
  const char* kallsyms;
  const char* kcore;     /* file, or directory with kcore, kallsyms, modules */
  const char* kcore_end; /* a second copy, taken at the end of the recording */
  const char* modules;   /* directory of kernel modules */
  const char* buildid_dir;
  int no_host_files; /* not 0: do not look for recorded paths on this machine */
  int force;         /* not 0: use files whose identity does not agree */
} asof_open_options;
#define ASOF_OPEN_OPTIONS_INIT \
  { sizeof(asof_open_options), NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0 }

/* perf.data as file or directory, "-" (standard input), bundle.json, LLDB's trace.json, block stream.
 * `options` may be NULL. NULL: failed, E-FILE-*. */
ASOF_EXPORT asof_capture* asof_open(const char* path, const asof_open_options* options, asof_error** error);
ASOF_EXPORT void asof_close(asof_capture* capture);

/* "perf.data", "bundle", ...; and uname -m of the recording. They live as long as the capture. */
ASOF_EXPORT const char* asof_capture_kind(const asof_capture* capture);
ASOF_EXPORT const char* asof_capture_machine(const asof_capture* capture);

/* Streams of trace: one for each CPU or thread. */
typedef struct asof_stream {
  size_t size;
  const char* name; /* "cpu0", "tid4711" */
  int32_t cpu;      /* -1: of a thread */
  int32_t tid;      /* -1: of a CPU */
  uint64_t bytes;   /* of trace */
} asof_stream;
#define ASOF_STREAM_INIT \
  { sizeof(asof_stream), NULL, -1, -1, 0 }

ASOF_EXPORT size_t asof_stream_count(const asof_capture* capture);
/* ASOF_END: there is no such one. */
ASOF_EXPORT asof_status asof_stream_at(const asof_capture* capture, size_t index, asof_stream* out);

/* What opening found and stepped over. */
typedef struct asof_notice {
  size_t size;
  int severity; /* 0: information, 1: something was not recorded, 2: something is wrong */
  const char* code;
  const char* where;
  const char* reason;
  const char* hint;
  uint64_t count; /* how often */
} asof_notice;
#define ASOF_NOTICE_INIT \
  { sizeof(asof_notice), 0, NULL, NULL, NULL, NULL, 0 }

ASOF_EXPORT size_t asof_notice_count(const asof_capture* capture);
ASOF_EXPORT asof_status asof_notice_at(const asof_capture* capture, size_t index, asof_notice* out);

/* ---- the executed flow ---- */

enum { ASOF_ORDER_TIME = 0, ASOF_ORDER_STREAM = 1 };

typedef struct asof_filter {
  size_t size;
  const int32_t* cpus; /* cpu_count of them; none: all */
  size_t cpu_count;
  const int32_t* pids;
  size_t pid_count;
  const int32_t* tids;
  size_t tid_count;
  int64_t first, last; /* times, both included; records without a time pass */
  int order;           /* ASOF_ORDER_TIME: all CPUs merged; ASOF_ORDER_STREAM: one CPU after the other */
  unsigned jobs; /* decoding threads; 0: one for each CPU of this machine. Records do not depend on it */
} asof_filter;
#define ASOF_FILTER_INIT \
  { sizeof(asof_filter), NULL, 0, NULL, 0, NULL, 0, ASOF_TIME_MIN, ASOF_TIME_MAX, ASOF_ORDER_TIME, 0 }

/* enum values: those of asof::Branch, asof::Confidence and asof::EventKind in asof/flow.h and asof/types.h.
 */
enum { ASOF_CERTAIN, ASOF_PROVED, ASOF_EQUIVALENT, ASOF_AMBIGUOUS, ASOF_CONTRADICTION };
enum {
  ASOF_BRANCH_NONE,
  ASOF_BRANCH_CONDITIONAL,
  ASOF_BRANCH_JUMP,
  ASOF_BRANCH_CALL,
  ASOF_BRANCH_INDIRECT_JUMP,
  ASOF_BRANCH_INDIRECT_CALL,
  ASOF_BRANCH_RETURN,
  ASOF_BRANCH_FAR_CALL,
  ASOF_BRANCH_FAR_RETURN,
  ASOF_BRANCH_FAR_JUMP,
  ASOF_BRANCH_PTWRITE,
  ASOF_BRANCH_PAGING
};
enum { ASOF_TAKEN = 1, ASOF_AFTER_GAP = 2, ASOF_ASYNC_ENTRY = 4, ASOF_TRANSACTION = 8 };

/* One executed instruction. */
typedef struct asof_instruction {
  size_t size;
  uint64_t ip;
  int64_t time;         /* of the last timing packet read for it, no bound */
  const uint8_t* bytes; /* `length` of them; until the reader is closed */
  uint32_t length;
  int32_t cpu, pid, tid; /* -1: unknown */
  uint32_t space;        /* address space; ASOF_KERNEL_SPACE or one of a process image */
  uint32_t source;       /* of the bytes: asof_source_at() */
  uint32_t version;      /* of its text, from 1; 0: unknown */
  uint8_t mode;          /* 16, 32 or 64 */
  uint8_t branch;        /* ASOF_BRANCH_... */
  uint8_t confidence;    /* ASOF_CERTAIN, ... */
  uint8_t flags;         /* ASOF_TAKEN | ... */
} asof_instruction;

/* One execution of a straight run of instructions. */
typedef struct asof_block {
  size_t size;
  uint64_t ip;
  uint64_t target;        /* of the direct branch at its end; 0: none */
  int64_t time;           /* as asof_instruction.time */
  int64_t from, until;    /* when these bytes were there, both included */
  const uint8_t* bytes;   /* `length` of them; until the reader is closed */
  const uint8_t* lengths; /* of its instructions, `count` of them */
  uint32_t length;
  uint32_t count;
  int32_t cpu, pid, tid;
  uint32_t space;
  uint32_t source; /* of its first instruction */
  uint8_t mode;
  uint8_t branch; /* of its last instruction; ASOF_BRANCH_NONE: cut short */
  uint8_t confidence;
  uint8_t flags;
} asof_block;

/* A stretch of trace without flow. */
typedef struct asof_gap {
  size_t size;
  const char* code;    /* stable: "E-FLOW-001". Until the next record */
  const char* reason;  /* likewise */
  int64_t first, last; /* when, as far as known */
  uint64_t ip;         /* where the flow was lost; 0: unknown */
  uint64_t resume_ip;  /* where it goes on; 0: unknown */
  uint64_t begin, end; /* bytes of the stream that were passed over */
  uint64_t file_offset;
  int32_t cpu, pid, tid;
} asof_gap;

/* A packet other than flow. */
typedef struct asof_event {
  size_t size;
  int kind; /* asof_event_name() */
  int64_t time;
  uint64_t ip;
  uint64_t a, b;   /* by kind: asof::EventKind */
  uint64_t offset; /* in the stream */
  int32_t cpu, pid, tid;
} asof_event;

/* Begin to read; `filter` may be NULL: everything. Decoding starts at the first record that is read, in
 * threads of its own. NULL: failed (a structure of impossible size, or no memory: E-FILE-091, E-FILE-093). */
ASOF_EXPORT asof_reader* asof_instructions(const asof_capture* capture, const asof_filter* filter,
                                           asof_error** error);
ASOF_EXPORT asof_reader* asof_blocks(const asof_capture* capture, const asof_filter* filter,
                                     asof_error** error);
ASOF_EXPORT asof_reader* asof_gaps(const asof_capture* capture, const asof_filter* filter,
                                   asof_error** error);
ASOF_EXPORT asof_reader* asof_events(const asof_capture* capture, const asof_filter* filter,
                                     asof_error** error);

/* The next record. `out->size` must be set. ASOF_END: that was all. ASOF_FAILED: the reader is of another
 * kind, out->size is impossible, or there is no memory. */
ASOF_EXPORT asof_status asof_next_instruction(asof_reader* reader, asof_instruction* out, asof_error** error);
ASOF_EXPORT asof_status asof_next_block(asof_reader* reader, asof_block* out, asof_error** error);
ASOF_EXPORT asof_status asof_next_gap(asof_reader* reader, asof_gap* out, asof_error** error);
ASOF_EXPORT asof_status asof_next_event(asof_reader* reader, asof_event* out, asof_error** error);

/* Also before the end. Waits for the segments that are being decoded. */
ASOF_EXPORT void asof_reader_close(asof_reader* reader);

/* "certain", ...; "jcc", ...; "ptwrite", ...: "" for values there are none of. Static storage. */
ASOF_EXPORT const char* asof_confidence_name(int confidence);
ASOF_EXPORT const char* asof_branch_name(int branch);
ASOF_EXPORT const char* asof_event_name(int kind);

/* ---- text ---- */

/* The bytes [address, address + size) as they were at `time`, where several versions are possible as the one
 * that began last. `bytes` has room for `size` bytes (unknown ones become 0), `sources` for as many numbers
 * (0: the byte is unknown) or is NULL. Returns how many bytes from `address` on are known without a hole;
 * SIZE_MAX: failed, the size is 0 or more than 16 MiB (E-FILE-091). */
ASOF_EXPORT size_t asof_text_at(const asof_capture* capture, uint64_t address, size_t size, int64_t time,
                                uint32_t space, uint8_t* bytes, uint32_t* sources, asof_error** error);

/* Of the bytes that asof_text_at() gives: `doubts` has room for `size` bytes, which become 1 where the byte may have
 * been another one at `time` (several versions are possible, or it may have changed without a record), else 0.
 * Returns how many are 1; SIZE_MAX: as there. */
ASOF_EXPORT size_t asof_text_doubts(const asof_capture* capture, uint64_t address, size_t size, int64_t time,
                                    uint32_t space, uint8_t* doubts, asof_error** error);

/* Where bytes came from. */
typedef struct asof_source {
  size_t size;
  const char* kind;     /* "kcore", "file", "poke", ...; static storage */
  const char* name;     /* path, name of a program; may be "". As long as the capture */
  const char* build_id; /* hexadecimal; may be "". As long as the capture */
  uint64_t id;          /* "bpf": id of the program; "poke", "before poke": index of the change */
} asof_source;
ASOF_EXPORT asof_status asof_source_at(const asof_capture* capture, uint32_t source, asof_source* out);

/* A PERF_RECORD_TEXT_POKE record. */
typedef struct asof_change {
  size_t size;
  uint64_t address;
  int64_t time; /* of the record, which the kernel writes before it changes the text */
  const uint8_t* old_bytes;
  size_t old_size;
  const uint8_t* new_bytes;
  size_t new_size;
} asof_change;
ASOF_EXPORT size_t asof_change_count(const asof_capture* capture);
ASOF_EXPORT asof_status asof_change_at(const asof_capture* capture, size_t index, asof_change* out);

/* Name of the symbol that covers `address` at `time`, with the offset in it in *offset (may be NULL). NULL:
 * none. Lives as long as the capture. */
ASOF_EXPORT const char* asof_symbol_at(const asof_capture* capture, uint64_t address, int64_t time,
                                       uint32_t space, uint64_t* offset);

#ifdef __cplusplus
}
#endif
#endif
