/* What a recording changes on the machine is written down before it is changed, in a file of the process that changes
 * it: /run/asof-record/NAME.PID. Whoever changed it puts it back and removes the file. Where that process was killed, the
 * guardian of the recording does (restore.c), or the next one that starts here, or `restore`. /run is emptied when the
 * machine starts anew, and so is all that is written there.
 *
 * A line is an action that puts something back, with its fields between tabs:
 *   write  PATH OLD NEW   OLD into the file, if NEW is what it holds; NEW may be empty: whatever it holds
 *   append PATH TEXT      a line added to the file, as tracefs takes commands
 *   folder PATH           the folder removed: a list of events of its own, as tracefs makes one with it
 *   module NAME           the module taken out
 *   end    PID START      the process ended, if it is the one that started then
 * They are done from the last to the first. */
#ifndef ASOF_TOOLS_RECORD_UNDO_H
#define ASOF_TOOLS_RECORD_UNDO_H

#ifdef __cplusplus
extern "C" {
#endif

/* Begins this process's file below `root`/run. 0 or an errno value: then undo_note() does nothing. */
int undo_open(const char* root, const char* name);
/* Writes down one line, of fields that are up to a NULL. 0 or an errno value: then nothing may be changed. */
int undo_note(const char* action, ...);
/* All was put back by this process itself. */
void undo_done(void);
/* Does what this process has written down, and ends its file. 0, or how many actions failed: the file stays then. */
int undo_now(void);
/* Does what processes that are no more have written down. The number of files that it could not be done for. */
int undo_all(const char* root);
/* Writes to a file that is there; `flags` as of open(2). 0 or an errno value. */
int undo_write(const char* path, const char* text, int flags);
/* When a process started, in clock ticks since the machine did; 0: there is none. */
unsigned long long undo_start_of(long pid);

#ifdef __cplusplus
}
#endif

#endif
