/* init of a simulated board: opens perf's side-band, copies kernel text, changes text while both CPUs work,
 * copies again, and hands everything out through the doorbell. Options come from the kernel's command line as
 * environment: plan=tiny, small or full, and seed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "guest.h"

static void mount_all(void) {
  static const char* const kTypes[][2] = {{"proc", "/proc"},
                                          {"sysfs", "/sys"},
                                          {"devtmpfs", "/dev"},
                                          {"debugfs", "/sys/kernel/debug"},
                                          {"tracefs", "/sys/kernel/tracing"}};
  for (size_t i = 0; i < sizeof kTypes / sizeof *kTypes; ++i) {
    mkdir(kTypes[i][1], 0755);
    if (mount("none", kTypes[i][1], kTypes[i][0], 0, NULL) != 0) say("no %s", kTypes[i][0]);
  }
}

#if defined(__x86_64__)
static void tell_entry(const char* name, uint64_t address, const char* module) {
  if (module[0] != 0) return;
  if (strncmp(name, "asm_exc_", 8) == 0 || strncmp(name, "asm_sysvec_", 11) == 0)
    ring(BOARD_RANGE, BOARD_ENTRY, address, 1);
  /* Stubs of 8 or, with IBT, 16 bytes for the external vectors. */
  if (strcmp(name, "irq_entries_start") == 0 || strcmp(name, "spurious_entries_start") == 0)
    ring(BOARD_RANGE, BOARD_ENTRY, address, strcmp(name, "irq_entries_start") == 0 ? 16 * 224 : 16 * 32);
}
#else
static void tell_entry(const char* name, uint64_t address, const char* module) {
  if (module[0] != 0) return;
  if (strcmp(name, "vectors") == 0) ring(BOARD_RANGE, BOARD_ENTRY, address, 0x800);
  if (strncmp(name, "el1h_64_", 8) == 0 && strstr(name, "handler") == NULL)
    ring(BOARD_RANGE, BOARD_ENTRY, address, 0x100);
  if (strcmp(name, "aarch64_insn_write") == 0 || strcmp(name, "__aarch64_insn_write") == 0)
    ring(BOARD_RANGE, BOARD_WRITER, address, 0x200);
  if (strcmp(name, "copy_to_kernel_nofault") == 0) ring(BOARD_RANGE, BOARD_WRITER, address, 0x200);
}
#endif

static void put_system(void) {
  struct utsname u;
  char text[512];
  if (uname(&u) != 0) die("uname");
  char* memory = read_file("/proc/iomem", NULL);
  char* code = strstr(memory, " : Kernel code");
  while (code != NULL && code > memory && code[-1] != '\n') --code;
  /* The last line: where the kernel's text is in physical memory. */
  snprintf(text, sizeof text, "%s\n%s\n%s\n%llx\n", u.release, u.version, u.machine,
           code != NULL ? strtoull(code, NULL, 16) : 0);
  free(memory);
  file_begin("system");
  file_put(text, strlen(text));
  file_end();
}

int main(void) {
  const char *plan_name = getenv("plan"), *seed = getenv("seed");
  enum plan plan = kSmall;
  if (plan_name != NULL && strcmp(plan_name, "tiny") == 0) plan = kTiny;
  if (plan_name != NULL && strcmp(plan_name, "full") == 0) plan = kFull;
  mount_all();
  pin(0);
  doorbell_open();
  say("up");
  steps_open();
  symbols_load();
  symbols_each(tell_entry);
  work_open(seed != NULL ? (uint32_t)strtoul(seed, NULL, 10) : 1);
  sideband_open();
  snapshot("");
  say("copied kernel text");
  work_start(1);
  ring(BOARD_START, 0, 0, 0);
  steps_run(plan);
  work_burst(8);
  ring(BOARD_STOP, 0, 0, 0);
  work_stop();
  say("recorded");
  sideband_dump();
  bpf_dump();
  watch_dump();
  snapshot(".end");
  put_system();
  say("done");
  reboot(RB_AUTOBOOT);
  return 0;
}
