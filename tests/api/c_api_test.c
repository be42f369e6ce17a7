/* The C interface from C11: c_api_test CAPTURE SYMFS. Prints what fails and ends with 1. */
#include <asof/asof_c.h>
#include <stdio.h>
#include <string.h>

static int failures;

#define CHECK(cond)                                              \
  do {                                                           \
    if (!(cond)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
      ++failures;                                                \
    }                                                            \
  } while (0)

static void check_errors(const asof_capture* capture) {
  asof_error* error = NULL;
  CHECK(asof_open("/no/such/file", NULL, &error) == NULL);
  CHECK(strcmp(asof_error_code(error), "E-FILE-101") == 0);
  CHECK(strcmp(asof_error_where(error), "/no/such/file") == 0);
  CHECK(asof_error_reason(error)[0] != '\0');
  CHECK(asof_error_offset(error) == UINT64_MAX);
  asof_error_free(error);
  error = NULL;
  CHECK(asof_open(NULL, NULL, &error) == NULL);
  CHECK(strcmp(asof_error_code(error), "E-FILE-091") == 0);
  asof_error_free(error);
  CHECK(asof_open("/no/such/file", NULL, NULL) == NULL); /* no error is made unless requested */
  CHECK(strcmp(asof_error_code(NULL), "") == 0);
  asof_error_free(NULL);
  asof_close(NULL);
  asof_reader_close(NULL);

  asof_filter filter = ASOF_FILTER_INIT;
  filter.size = 3;
  error = NULL;
  CHECK(asof_instructions(capture, &filter, &error) == NULL);
  CHECK(strcmp(asof_error_code(error), "E-FILE-091") == 0);
  asof_error_free(error);

  asof_reader* reader = asof_gaps(capture, NULL, NULL);
  asof_instruction instruction = {.size = sizeof instruction};
  error = NULL;
  CHECK(asof_next_instruction(reader, &instruction, &error) == ASOF_FAILED);
  CHECK(strcmp(asof_error_code(error), "E-FILE-091") == 0);
  asof_error_free(error);
  asof_gap gap = {.size = 0};
  CHECK(asof_next_gap(reader, &gap, NULL) == ASOF_FAILED);
  asof_reader_close(reader);

  uint8_t byte;
  error = NULL;
  CHECK(asof_text_at(capture, 0, 0, 0, ASOF_KERNEL_SPACE, &byte, NULL, &error) == SIZE_MAX);
  CHECK(strcmp(asof_error_code(error), "E-FILE-091") == 0);
  asof_error_free(error);
  CHECK(asof_text_doubts(capture, 0, 0, 0, ASOF_KERNEL_SPACE, &byte, NULL) == SIZE_MAX);
  CHECK(asof_text_at(capture, UINT64_MAX, 16, 0, ASOF_KERNEL_SPACE, &byte, NULL, NULL) == SIZE_MAX);
}

static void check_capture(const asof_capture* capture) {
  asof_stream stream = ASOF_STREAM_INIT;
  CHECK(strcmp(asof_capture_machine(capture), "x86_64") == 0);
  CHECK(strcmp(asof_capture_kind(capture), "perf.data directory") == 0);
  CHECK(asof_stream_count(capture) == 2);
  CHECK(asof_stream_at(capture, 1, &stream) == ASOF_OK);
  CHECK(stream.cpu == 1 && stream.bytes > 1000 && strcmp(stream.name, "cpu1") == 0);
  CHECK(asof_stream_at(capture, 2, &stream) == ASOF_END);
  for (size_t i = 0; i < asof_notice_count(capture); ++i) {
    asof_notice notice = ASOF_NOTICE_INIT;
    CHECK(asof_notice_at(capture, i, &notice) == ASOF_OK);
    CHECK(notice.code[1] == '-');
  }
}

/* Instructions and blocks report the same number of instructions and bytes. */
static void check_flow(const asof_capture* capture) {
  const int32_t cpu = 1;
  asof_filter filter = ASOF_FILTER_INIT;
  asof_reader* reader = asof_instructions(capture, NULL, NULL);
  asof_instruction i = {.size = sizeof i};
  unsigned long count = 0, bytes = 0, of_cpu = 0, changed = 0;
  while (asof_next_instruction(reader, &i, NULL) == ASOF_OK) {
    CHECK(i.size == sizeof i);
    ++count;
    bytes += i.length;
    if (i.cpu == cpu) ++of_cpu;
    if (i.version > 1) ++changed;
    CHECK(asof_confidence_name(i.confidence)[0] != '\0');
  }
  CHECK(count == 61625);
  CHECK(changed > 0);
  CHECK(asof_next_instruction(reader, &i, NULL) == ASOF_END);
  asof_reader_close(reader);

  reader = asof_blocks(capture, NULL, NULL);
  asof_block b = {.size = sizeof b};
  unsigned long in_blocks = 0, block_bytes = 0;
  while (asof_next_block(reader, &b, NULL) == ASOF_OK) {
    in_blocks += b.count;
    block_bytes += b.length;
  }
  CHECK(in_blocks == count && block_bytes == bytes);
  asof_reader_close(reader);

  filter.cpus = &cpu;
  filter.cpu_count = 1;
  filter.jobs = 1;
  reader = asof_instructions(capture, &filter, NULL);
  count = 0;
  while (asof_next_instruction(reader, &i, NULL) == ASOF_OK) ++count;
  CHECK(count == of_cpu);
  asof_reader_close(reader);

  /* A caller of an older version knows fewer members: the rest is not touched. */
  struct {
    asof_instruction instruction;
  } old;
  memset(&old, 0x5a, sizeof old);
  old.instruction.size = offsetof(asof_instruction, bytes);
  reader = asof_instructions(capture, NULL, NULL);
  CHECK(asof_next_instruction(reader, &old.instruction, NULL) == ASOF_OK);
  CHECK(old.instruction.ip == 0x401000 && old.instruction.length == 0x5a5a5a5a);
  asof_reader_close(reader); /* before the end */
}

static void check_gaps_and_events(const asof_capture* capture) {
  asof_reader* reader = asof_gaps(capture, NULL, NULL);
  asof_gap gap = {.size = sizeof gap};
  unsigned n = 0;
  while (asof_next_gap(reader, &gap, NULL) == ASOF_OK) {
    CHECK(strcmp(gap.code, "E-LOST-103") == 0 && gap.reason[0] != '\0' && gap.cpu == 1);
    ++n;
  }
  CHECK(n == 1);
  asof_reader_close(reader);
  reader = asof_events(capture, NULL, NULL);
  asof_event event = {.size = sizeof event};
  n = 0;
  while (asof_next_event(reader, &event, NULL) == ASOF_OK) {
    if (strcmp(asof_event_name(event.kind), "psb") == 0) ++n;
  }
  CHECK(n > 2);
  asof_reader_close(reader);
  CHECK(strcmp(asof_event_name(-1), "") == 0 && strcmp(asof_branch_name(1), "jcc") == 0);
}

static void check_text(const asof_capture* capture) {
  CHECK(asof_change_count(capture) == 10);
  for (size_t i = 0; i < asof_change_count(capture); ++i) {
    asof_change change = {.size = sizeof change};
    uint8_t bytes[16];
    uint32_t sources[16];
    asof_source source = {.size = sizeof source};
    uint64_t offset = 0;
    CHECK(asof_change_at(capture, i, &change) == ASOF_OK);
    CHECK(change.old_size == 5 && change.new_size == 5);
    CHECK(asof_text_at(capture, change.address, 5, change.time - 1, ASOF_KERNEL_SPACE, bytes, NULL, NULL) ==
          5);
    CHECK(memcmp(bytes, change.old_bytes, 5) == 0);
    CHECK(asof_text_at(capture, change.address, 5, change.time + 1, ASOF_KERNEL_SPACE, bytes, sources,
                       NULL) == 5);
    CHECK(memcmp(bytes, change.new_bytes, 5) == 0);
    CHECK(asof_text_doubts(capture, change.address, 5, change.time, ASOF_KERNEL_SPACE, bytes, NULL) == 0);
    CHECK(bytes[0] == 0 && bytes[4] == 0);
    /* A module, which may be replaced without a record. */
    CHECK(asof_text_doubts(capture, 0xffffffffc0000000, 5, change.time, ASOF_KERNEL_SPACE, bytes, NULL) == 5);
    CHECK(bytes[0] == 1 && bytes[4] == 1);
    CHECK(asof_source_at(capture, sources[0], &source) == ASOF_OK);
    CHECK(strcmp(source.kind, "poke") == 0 && source.id == i);
    CHECK(asof_symbol_at(capture, change.address, change.time, ASOF_KERNEL_SPACE, &offset) != NULL);
    CHECK(offset > 0 && offset < 4096);
  }
  CHECK(asof_symbol_at(capture, 16, 0, ASOF_KERNEL_SPACE, NULL) == NULL);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  asof_open_options options = ASOF_OPEN_OPTIONS_INIT;
  options.symfs = argv[2];
  asof_error* error = NULL;
  asof_capture* capture = asof_open(argv[1], &options, &error);
  if (capture == NULL) {
    fprintf(stderr, "%s %s\n", asof_error_code(error), asof_error_reason(error));
    asof_error_free(error);
    return 1;
  }
  CHECK(strcmp(asof_version(), "0.2.0") == 0);
  check_capture(capture);
  check_errors(capture);
  check_flow(capture);
  check_gaps_and_events(capture);
  check_text(capture);
  asof_close(capture);
  return failures == 0 ? 0 : 1;
}
