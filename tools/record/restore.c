/* restore: puts back what killed recordings have left switched on (undo.h).
 *
 * restore --guard is the guardian of one recording. The script that records writes lines of undo.h to it, which are written
 * down before they are answered with "ok", and keeps the pipe open for as long as it lives. However it ends, the guardian
 * then ends the processes it was told of and puts everything back. It has a session of its own, so that no signal from the
 * terminal reaches it; if it is killed itself, its file is left for the next `restore`. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "undo.h"

enum { kUsage = 1, kNotRestored = 3, kMostFields = 4 };

static const char* note(char* line) {
  char* field[kMostFields] = {NULL, NULL, NULL, NULL};
  char start[32];
  int count = 0;
  line[strcspn(line, "\n")] = '\0';
  for (char* f = strsep(&line, "\t"); f != NULL; f = strsep(&line, "\t")) {
    if (count == kMostFields) return strerror(EINVAL);
    field[count++] = f;
  }
  if (strcmp(field[0], "end") == 0 && count == 2) {
    snprintf(start, sizeof start, "%llu", undo_start_of(strtol(field[1], NULL, 10)));
    field[2] = start;
  }
  const int error = undo_note(field[0], field[1], field[2], field[3], NULL);
  return error == 0 ? "ok" : strerror(error);
}

static int guard(const char* root) {
  char line[2048];
  for (const int* s = (const int[]){SIGINT, SIGTERM, SIGHUP, SIGPIPE, 0}; *s != 0; ++s) signal(*s, SIG_IGN);
  setsid();
  const int error = undo_open(root, "recording");
  if (error != 0) fprintf(stderr, "restore: %s/run/asof-record: %s\n", root, strerror(error));
  puts(error == 0 ? "ok" : "no");
  fflush(stdout);
  while (error == 0 && fgets(line, sizeof line, stdin) != NULL) {
    puts(note(line));
    fflush(stdout);
  }
  int failed = undo_now();
  failed += undo_all(root);
  return failed == 0 ? 0 : kNotRestored;
}

int main(int argc, char** argv) {
  const char* root = "";
  int guards = 0;
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--guard") == 0) {
      guards = 1;
    } else if (strcmp(argv[i], "--root") == 0 && i + 1 < argc) {
      root = argv[++i];
    } else {
      fputs(
          "usage: restore [--root DIR]\n"
          "Puts back what recordings that were killed have left switched on: probes, tracepoints, the "
          "function "
          "tracer,\n"
          "sysctls, modules. Exit status: 0 done, 1 usage, 3 something could not be put back.\n",
          stderr);
      return kUsage;
    }
  }
  if (guards) return guard(root);
  return undo_all(root) == 0 ? 0 : kNotRestored;
}
