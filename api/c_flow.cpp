// The C interface: the executed flow.
#include <variant>

#include "api/c_support.h"

using namespace asof::c;

namespace {

static_assert(ASOF_CONTRADICTION == static_cast<int>(v0::Confidence::kContradiction));
static_assert(ASOF_BRANCH_CALL == static_cast<int>(v0::Branch::kCall) &&
              ASOF_BRANCH_RETURN == static_cast<int>(v0::Branch::kReturn) &&
              ASOF_BRANCH_PAGING == static_cast<int>(v0::Branch::kPaging));
static_assert(ASOF_TAKEN == v0::kTaken && ASOF_AFTER_GAP == v0::kAfterGap &&
              ASOF_ASYNC_ENTRY == v0::kAsyncEntry && ASOF_TRANSACTION == v0::kTransaction);
static_assert(ASOF_TIME_MIN == v0::kTimeMin && ASOF_TIME_MAX == v0::kTimeMax);

template <class T>
struct Cursor {
  explicit Cursor(v0::Records<T> r) : records(std::move(r)) {}
  v0::Records<T> records;
  std::span<const T> batch;
  size_t at = 0;

  const T* next() {
    if (at == batch.size()) {
      batch = records.next();
      at = 0;
    }
    return batch.empty() ? nullptr : &batch[at++];
  }
};

}  // namespace

struct asof_reader {
  std::variant<Cursor<v0::Instruction>, Cursor<v0::Block>, Cursor<v0::Gap>, Cursor<v0::Event>> cursor;
};

namespace {

bool read_list(const int32_t* list, size_t count, std::vector<int32_t>& out) {
  constexpr size_t kMost = 1 << 20;
  if (count > kMost || (list == nullptr && count != 0)) return false;
  out.assign(list, list + count);
  return true;
}

bool read_filter(const asof_filter* from, v0::Filter& to) {
  asof_filter f = ASOF_FILTER_INIT;
  if (!read_struct(from, f)) return false;
  if (!read_list(f.cpus, f.cpu_count, to.cpus) || !read_list(f.pids, f.pid_count, to.pids) ||
      !read_list(f.tids, f.tid_count, to.tids)) {
    return false;
  }
  to.time = {f.first, f.last};
  if (f.order != ASOF_ORDER_TIME && f.order != ASOF_ORDER_STREAM) return false;
  to.order = f.order == ASOF_ORDER_TIME ? v0::Order::kTime : v0::Order::kStream;
  to.jobs = f.jobs;
  return true;
}

template <class T>
asof_reader* open_reader(const asof_capture* capture, const asof_filter* filter, asof_error** error,
                         v0::Records<T> (v0::Capture::*records)(const v0::Filter&) const) {
  return guarded<asof_reader*>(error, nullptr, [&]() -> asof_reader* {
    v0::Filter f;
    if (capture == nullptr || !read_filter(filter, f)) {
      bad_value(error, "filter", "no capture, or a filter of impossible size, order or length");
      return nullptr;
    }
    return new asof_reader{Cursor<T>((capture->capture.*records)(f))};
  });
}

void fill(const v0::Instruction& i, asof_instruction& out) {
  out = {sizeof out,
         i.ip,
         i.time,
         i.bytes,
         i.size,
         i.cpu,
         i.pid,
         i.tid,
         i.space,
         i.source,
         i.version,
         i.mode,
         static_cast<uint8_t>(i.branch),
         static_cast<uint8_t>(i.confidence),
         i.flags};
}

void fill(const v0::Block& b, asof_block& out) {
  out = {sizeof out,
         b.ip,
         b.target,
         b.time,
         b.from,
         b.until,
         b.bytes,
         b.lengths,
         b.size,
         b.count,
         b.cpu,
         b.pid,
         b.tid,
         b.space,
         b.source,
         b.mode,
         static_cast<uint8_t>(b.branch),
         static_cast<uint8_t>(b.confidence),
         b.flags};
}

void fill(const v0::Gap& g, asof_gap& out) {
  out = {sizeof out, g.code.c_str(), g.reason.c_str(), g.time.first, g.time.last, g.ip, g.resume_ip,
         g.begin,    g.end,          g.file_offset,    g.cpu,        g.pid,       g.tid};
}

void fill(const v0::Event& e, asof_event& out) {
  out = {sizeof out, static_cast<int>(e.kind), e.time, e.ip, e.a, e.b, e.offset, e.cpu, e.pid, e.tid};
}

template <class T, class Out>
asof_status next(asof_reader* reader, Out* out, asof_error** error) {
  return guarded(error, ASOF_FAILED, [&] {
    auto* cursor = reader == nullptr ? nullptr : std::get_if<Cursor<T>>(&reader->cursor);
    if (cursor == nullptr || out == nullptr || !possible(out->size)) {
      bad_value(error, "reader", "a reader of another kind, or a record of impossible size");
      return ASOF_FAILED;
    }
    const T* const record = cursor->next();
    if (record == nullptr) return ASOF_END;
    Out made;
    fill(*record, made);
    write_struct(made, out);
    return ASOF_OK;
  });
}

}  // namespace

asof_reader* asof_instructions(const asof_capture* c, const asof_filter* f, asof_error** e) {
  return open_reader(c, f, e, &v0::Capture::instructions);
}
asof_reader* asof_blocks(const asof_capture* c, const asof_filter* f, asof_error** e) {
  return open_reader(c, f, e, &v0::Capture::blocks);
}
asof_reader* asof_gaps(const asof_capture* c, const asof_filter* f, asof_error** e) {
  return open_reader(c, f, e, &v0::Capture::gaps);
}
asof_reader* asof_events(const asof_capture* c, const asof_filter* f, asof_error** e) {
  return open_reader(c, f, e, &v0::Capture::events);
}

asof_status asof_next_instruction(asof_reader* r, asof_instruction* out, asof_error** e) {
  return next<v0::Instruction>(r, out, e);
}
asof_status asof_next_block(asof_reader* r, asof_block* out, asof_error** e) {
  return next<v0::Block>(r, out, e);
}
asof_status asof_next_gap(asof_reader* r, asof_gap* out, asof_error** e) { return next<v0::Gap>(r, out, e); }
asof_status asof_next_event(asof_reader* r, asof_event* out, asof_error** e) {
  return next<v0::Event>(r, out, e);
}

void asof_reader_close(asof_reader* reader) { delete reader; }

const char* asof_confidence_name(int c) {
  return c < 0 || c > UINT8_MAX ? "" : c_string(v0::name(static_cast<v0::Confidence>(c)));
}
const char* asof_branch_name(int b) {
  return b < 0 || b > UINT8_MAX ? "" : c_string(v0::name(static_cast<v0::Branch>(b)));
}
const char* asof_event_name(int kind) {
  return kind < 0 || kind > UINT8_MAX ? "" : c_string(v0::name(static_cast<v0::EventKind>(kind)));
}
