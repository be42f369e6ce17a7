/* See undo.h. The folder and its files are the owner's alone: whoever could write there would choose what root writes.
 */
#define _GNU_SOURCE
#include "undo.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { kPath = 768, kLine = 2048, kMostFields = 4, kMostBytes = 1 << 20 };

static int journal = -1;
static char journal_path[kPath];
static char journal_root[kPath];

static int lock(int fd, int wait) {
  struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  while (fcntl(fd, wait ? F_SETLKW : F_SETLK, &whole) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

/* The folder, made if it is not there. A folder of somebody else, or a link, is refused. */
static int open_folder(const char* root) {
  char path[kPath];
  struct stat st;
  snprintf(path, sizeof path, "%s/run", root);
  mkdir(path, 0755);
  snprintf(path, sizeof path, "%s/run/asof-record", root);
  mkdir(path, 0700);
  const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return -1;
  if (fstat(fd, &st) == 0 && st.st_uid == geteuid() && (st.st_mode & 077) == 0) return fd;
  close(fd);
  errno = EPERM;
  return -1;
}

/* Held while a file is begun, and while files of dead processes are looked for: one that was just made, and is not locked
 * yet, is not one of those. */
static int lock_folder(int folder) {
  const int fd = openat(folder, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd >= 0) lock(fd, 1);
  return fd;
}

int undo_open(const char* root, const char* name) {
  char file[64];
  const int folder = open_folder(root);
  if (folder < 0) return errno;
  const int guard = lock_folder(folder);
  snprintf(file, sizeof file, "%s.%ld", name, (long)getpid());
  journal = openat(folder, file, O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  int error = journal < 0 ? errno : lock(journal, 0);
  snprintf(journal_path, sizeof journal_path, "%s/run/asof-record/%s", root, file);
  snprintf(journal_root, sizeof journal_root, "%s", root);
  if (guard >= 0) close(guard);
  close(folder);
  return error;
}

int undo_note(const char* action, ...) {
  char line[kLine];
  if (journal < 0) return 0;
  size_t size = (size_t)snprintf(line, sizeof line, "%s", action);
  va_list fields;
  va_start(fields, action);
  for (const char* f = va_arg(fields, const char*); f != NULL; f = va_arg(fields, const char*)) {
    const size_t n = strlen(f);
    if (strpbrk(f, "\t\n") != NULL || size + n + 3 > sizeof line) {
      va_end(fields);
      return EINVAL;
    }
    line[size++] = '\t';
    memcpy(line + size, f, n);  // NOLINT(bugprone-not-null-terminated-result): write() is told its length
    size += n;
  }
  va_end(fields);
  line[size++] = '\n';
  const ssize_t done = write(journal, line, size);
  return done == (ssize_t)size ? 0 : done < 0 ? errno : EIO;
}

void undo_done(void) {
  if (journal < 0) return;
  unlink(journal_path);
  close(journal);
  journal = -1;
}

unsigned long long undo_start_of(long pid) {
  char text[1024];
  snprintf(text, sizeof text, "/proc/%ld/stat", pid);
  const int fd = open(text, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  text[n > 0 ? n : 0] = '\0';
  const char* at = strrchr(text, ')'); /* the name before it may hold anything */
  if (at == NULL || at[1] == '\0' || at[2] == 'Z') return 0;
  /* From the state on, the start is the 20th field (proc(5)). */
  for (int i = 0; i < 20 && at != NULL; ++i) at = strchr(at + 1, ' ');
  return at != NULL ? strtoull(at, NULL, 10) : 0;
}

int undo_write(const char* path, const char* text, int flags) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC | flags);
  if (fd < 0) return errno;
  const size_t n = strlen(text);
  const ssize_t done = write(fd, text, n);
  const int error = done == (ssize_t)n ? 0 : done < 0 ? errno : EIO;
  close(fd);
  return error;
}

/* Whether the first line of a file is `text`. */
static int holds(const char* path, const char* text) {
  char now[kLine];
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t n = read(fd, now, sizeof now - 1);
  close(fd);
  now[n > 0 ? n : 0] = '\0';
  now[strcspn(now, "\n")] = '\0';
  return strcmp(now, text) == 0;
}

/* Nothing but switches of the kernel is ever written. */
static int is_switch(const char* root, const char* path) {
  const size_t n = strlen(root);
  if (strncmp(path, root, n) != 0 || strstr(path, "/../") != NULL) return 0;
  return strncmp(path + n, "/proc/sys/", 10) == 0 || strncmp(path + n, "/sys/kernel/", 12) == 0;
}

static void end_process(long pid, unsigned long long start) {
  const struct timespec pause = {0, 20000000};
  enum { kPolite = 500 };
  for (int i = 0; start != 0 && undo_start_of(pid) == start; ++i) {
    if (i == 0) kill((pid_t)pid, SIGTERM);
    if (i == kPolite) kill((pid_t)pid, SIGKILL);
    nanosleep(&pause, NULL);
  }
}

static int undo_line(const char* root, char* line) {
  char* field[kMostFields] = {line, "", "", ""};
  int count = 1;
  for (char* c = line; *c != '\0'; ++c) {
    if (*c != '\t') continue;
    if (count == kMostFields) return EINVAL;
    *c = '\0';
    field[count++] = c + 1;
  }
  int error = EINVAL;
  if (strcmp(field[0], "end") == 0) {
    end_process(strtol(field[1], NULL, 10), strtoull(field[2], NULL, 10));
    return 0;
  }
  if (strcmp(field[0], "module") == 0) {
    error = syscall(SYS_delete_module, field[1], O_NONBLOCK) == 0 ? 0 : errno;
  } else if (is_switch(root, field[1])) {
    if (strcmp(field[0], "append") == 0) {
      char command[kLine + 1];
      snprintf(command, sizeof command, "%s\n", field[2]);
      error = undo_write(field[1], command, O_NOFOLLOW | O_APPEND);
    } else if (strcmp(field[0], "folder") == 0) {
      error = rmdir(field[1]) == 0 ? 0 : errno;
    } else if (strcmp(field[0], "write") == 0) {
      error = *field[3] != '\0' && !holds(field[1], field[3])
                  ? 0
                  : undo_write(field[1], field[2], O_NOFOLLOW | O_TRUNC);
    }
  }
  return error == ENOENT ? 0 : error; /* it is gone already */
}

/* The lines of `fd`, from the last to the first. How many failed. */
static int undo_file(const char* root, int fd) {
  int failed = 0;
  char* const text = calloc(1, kMostBytes + 1);
  if (text == NULL) return 1;
  size_t size = 0;
  for (ssize_t n = 1; n > 0 && size<kMostBytes; size += n> 0 ? (size_t)n : 0)
    n = pread(fd, text + size, kMostBytes - size, (off_t)size);
  for (char* end = strrchr(text, '\n'); end != NULL;) { /* a line that was not finished says nothing */
    *end = '\0';
    char* const before = strrchr(text, '\n');
    char* const line = before != NULL ? before + 1 : text;
    char shown[kLine];
    snprintf(shown, sizeof shown, "%s", line);
    const int error = undo_line(root, line);
    if (error != 0) {
      fprintf(stderr, "asof-record: cannot put back '%s': %s\n", shown, strerror(error));
      ++failed;
    }
    end = before;
  }
  free(text);
  return failed;
}

int undo_now(void) {
  if (journal < 0) return 0;
  const int fd = open(journal_path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  const int failed = fd < 0 ? 1 : undo_file(journal_root, fd);
  if (failed == 0) undo_done();
  if (fd >= 0) close(fd);
  return failed;
}

int undo_all(const char* root) {
  int failed = 0;
  const int folder = open_folder(root);
  if (folder < 0) return errno == ENOENT || errno == EACCES || errno == EROFS ? 0 : 1;
  const int guard = lock_folder(folder);
  DIR* const list = fdopendir(folder);
  for (struct dirent* e = list != NULL ? readdir(list) : NULL; e != NULL; e = readdir(list)) {
    if (e->d_name[0] == '.' || strcmp(e->d_name, "lock") == 0) continue;
    const int fd = openat(dirfd(list), e->d_name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) continue;
    if (lock(fd, 0) == 0) { /* else its process lives */
      if (undo_file(root, fd) == 0)
        unlinkat(dirfd(list), e->d_name, 0);
      else
        ++failed;
    }
    close(fd);
  }
  if (list != NULL)
    closedir(list);
  else
    close(folder);
  if (guard >= 0) close(guard);
  return failed;
}
