// The C interface: errors and captures.
#include "api/c_support.h"

using namespace asof::c;

const char* asof_version(void) { return v0::version(); }

const char* asof_error_code(const asof_error* e) { return e == nullptr ? "" : e->error.code.c_str(); }
const char* asof_error_where(const asof_error* e) { return e == nullptr ? "" : e->error.where.c_str(); }
const char* asof_error_reason(const asof_error* e) { return e == nullptr ? "" : e->error.reason.c_str(); }
const char* asof_error_hint(const asof_error* e) { return e == nullptr ? "" : e->error.hint.c_str(); }
uint64_t asof_error_offset(const asof_error* e) {
  return e == nullptr ? UINT64_MAX : e->error.offset.value_or(UINT64_MAX);
}
void asof_error_free(asof_error* e) { delete e; }

asof_capture* asof_open(const char* path, const asof_open_options* options, asof_error** error) {
  return guarded<asof_capture*>(error, nullptr, [&]() -> asof_capture* {
    asof_open_options o = ASOF_OPEN_OPTIONS_INIT;
    if (path == nullptr || !read_struct(options, o)) {
      bad_value(error, "asof_open", "no path, or options of impossible size");
      return nullptr;
    }
    v0::OpenOptions to;
    to.symfs = text_or_empty(o.symfs);
    to.vmlinux = text_or_empty(o.vmlinux);
    to.kallsyms = text_or_empty(o.kallsyms);
    to.kcore = text_or_empty(o.kcore);
    to.kcore_end = text_or_empty(o.kcore_end);
    to.modules_dir = text_or_empty(o.modules);
    to.buildid_dir = text_or_empty(o.buildid_dir);
    to.host_files = o.no_host_files == 0;
    to.force = o.force != 0;
    auto opened = v0::Capture::open(path, to);
    if (!opened) {
      set_error(error, std::move(opened.error()));
      return nullptr;
    }
    v0::Text text = opened->text();
    return new asof_capture{*std::move(opened), std::move(text)};
  });
}

void asof_close(asof_capture* capture) { delete capture; }

const char* asof_capture_kind(const asof_capture* c) { return c->capture.info().kind.c_str(); }
const char* asof_capture_machine(const asof_capture* c) { return c->capture.info().machine.c_str(); }

size_t asof_stream_count(const asof_capture* c) { return c->capture.info().streams.size(); }
asof_status asof_stream_at(const asof_capture* c, size_t index, asof_stream* out) {
  return element(c->capture.info().streams, index, out, [](const v0::TraceStream& s) {
    return asof_stream{sizeof(asof_stream), s.name.c_str(), s.cpu, s.tid, s.bytes};
  });
}

size_t asof_notice_count(const asof_capture* c) { return c->capture.notices().size(); }
asof_status asof_notice_at(const asof_capture* c, size_t index, asof_notice* out) {
  return element(c->capture.notices(), index, out, [](const v0::Notice& n) {
    return asof_notice{sizeof(asof_notice),
                       static_cast<int>(n.severity),
                       n.code.c_str(),
                       n.where.c_str(),
                       n.reason.c_str(),
                       n.hint.c_str(),
                       n.count};
  });
}
