// Preloaded into asof: libipt as it is from 2.1 on, where another one is installed. pt_insn_time() wants all of its
// pointers, and an event behind an empty block is not told of beforehand: pt_insn_next() ends with pte_event_ignored, and
// pt_insn_event() has it then. Here this is so of every event but those at the end of the trace.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <intel-pt.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static int (*real_sync_forward)(struct pt_insn_decoder*);
static int (*real_sync_set)(struct pt_insn_decoder*, uint64_t);
static int (*real_next)(struct pt_insn_decoder*, struct pt_insn*, size_t);
static int (*real_event)(struct pt_insn_decoder*, struct pt_event*, size_t);
static int (*real_time)(struct pt_insn_decoder*, uint64_t*, uint32_t*, uint32_t*);

// A thread has one decoder at a time.
static _Thread_local int hidden;

__attribute__((constructor)) static void find(void) {
  *(void**)&real_sync_forward = dlsym(RTLD_NEXT, "pt_insn_sync_forward");
  *(void**)&real_sync_set = dlsym(RTLD_NEXT, "pt_insn_sync_set");
  *(void**)&real_next = dlsym(RTLD_NEXT, "pt_insn_next");
  *(void**)&real_event = dlsym(RTLD_NEXT, "pt_insn_event");
  *(void**)&real_time = dlsym(RTLD_NEXT, "pt_insn_time");
}

// Once in each process, for the test: it has to be met.
static void tell(const char* what) {
  static _Atomic int told;
  if (atomic_exchange(&told, 1) == 0 && write(STDERR_FILENO, what, strlen(what)) < 0) _exit(1);
}

static int hide(int status) {
  hidden = status >= 0 && (status & pts_event_pending) != 0 && (status & pts_eos) == 0;
  return hidden ? status & ~(int)pts_event_pending : status;
}

int pt_insn_sync_forward(struct pt_insn_decoder* decoder) { return hide(real_sync_forward(decoder)); }

int pt_insn_sync_set(struct pt_insn_decoder* decoder, uint64_t offset) {
  return hide(real_sync_set(decoder, offset));
}

int pt_insn_next(struct pt_insn_decoder* decoder, struct pt_insn* insn, size_t size) {
  if (!hidden) return hide(real_next(decoder, insn, size));
  hidden = 0;
  tell("later libipt: an event was ignored\n");
  memset(insn, 0, size);
  return -pte_event_ignored;
}

int pt_insn_event(struct pt_insn_decoder* decoder, struct pt_event* event, size_t size) {
  return hide(real_event(decoder, event, size));
}

int pt_insn_time(struct pt_insn_decoder* decoder, uint64_t* time, uint32_t* lost_mtc, uint32_t* lost_cyc) {
  return time && lost_mtc && lost_cyc ? real_time(decoder, time, lost_mtc, lost_cyc) : -pte_invalid;
}
