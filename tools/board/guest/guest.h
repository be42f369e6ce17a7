/* The init of a simulated board: its parts. Statically linked, the only program of the guest. */
#ifndef ASOF_BOARD_GUEST_H
#define ASOF_BOARD_GUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../protocol.h"

enum { kCpus = 2, kPageBytes = 4096 };

/* doorbell.c: talking to the emulator's plugin. */
void doorbell_open(void);
void ring(enum board_command command, uint64_t a, uint64_t b, uint64_t c);
void mark(void); /* this CPU's counter, now */
void file_begin(const char* name);
void file_put(const void* bytes, size_t size);
void file_end(void);
uint64_t counter(void);

/* util.c */
void die(const char* format, ...) __attribute__((format(printf, 1, 2), noreturn));
void say(const char* format, ...) __attribute__((format(printf, 1, 2)));
bool write_file(const char* path, const char* text); /* false: refused, and said so */
char* read_file(const char* path, size_t* size);     /* NUL after it */
void pin(int cpu);

/* snapshot.c: copies of kernel text and of what names it. */
void symbols_load(void);
uint64_t symbol(const char* name); /* 0: none */
void symbols_each(void (*f)(const char* name, uint64_t address, const char* module));
void snapshot(const char* suffix); /* "" before, ".end" after */
/* Appends what stands at this address now to ksym_text.bin. */
void watch_text(uint64_t address, uint32_t size, uint32_t type);
void watch_new_symbols(void);
void watch_dump(void);

/* sideband.c: perf's records, one ring per CPU. */
void sideband_open(void);
void sideband_dump(void);
/* Calls f for each KSYMBOL record that appeared since the last call. */
void sideband_each_symbol(void (*f)(uint64_t address, uint32_t size, uint32_t type));

/* bpf.c */
enum bpf_shape { kBpfPass, kBpfCount, kBpfLong, kBpfShapes };
int bpf_load(enum bpf_shape shape, uint32_t constant); /* a socket filter; its bytes are kept for bpf.bin */
void bpf_attach(int socket, int program);
void bpf_detach(int socket);
void bpf_dump(void);

/* work.c: what the CPUs do. */
void work_open(uint32_t seed);
int work_socket(void); /* of the datagrams; filters are attached to it */
void work_burst(unsigned items);
void work_start(int cpu);
/* What the other CPU does: so many bursts, with short or long rests, or now and then; or nothing. */
enum work_pace { kCalm, kBusy, kSlow, kQuiet };
void work_pace(enum work_pace pace, unsigned bursts);
void work_stop(void);

/* steps.c: what changes the kernel's text. */
void steps_open(void);
enum plan { kTiny, kSmall, kFull };
void steps_run(enum plan plan);

#endif
