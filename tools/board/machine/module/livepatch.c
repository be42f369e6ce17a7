// SPDX-License-Identifier: GPL-2.0
// A live patch for the workload `livepatch`: /proc/cmdline is answered by another function while it is enabled.
#include <linux/kernel.h>
#include <linux/livepatch.h>
#include <linux/module.h>
#include <linux/seq_file.h>

static int patched_cmdline_proc_show(struct seq_file* file, void* unused) {
  (void)unused;
  seq_puts(file, "patched\n");
  return 0;
}

static struct klp_func functions[] = {
    {.old_name = "cmdline_proc_show", .new_func = patched_cmdline_proc_show}, {}};

static struct klp_object objects[] = {{.funcs = functions}, {}};  // no name: the kernel itself

static struct klp_patch patch = {.mod = THIS_MODULE, .objs = objects};

static int __init start(void) { return klp_enable_patch(&patch); }

// Unloading is possible when the patch has been disabled through sysfs.
static void __exit end(void) {}

module_init(start);
module_exit(end);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("live patch of cmdline_proc_show()");
MODULE_INFO(livepatch, "Y");
