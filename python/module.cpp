// asof._asof: errors, filters, captures.
#include "module.h"

#include <pybind11/stl.h>

#include <string>

namespace asof_python {
namespace {

std::string message(const asof::Error& e) {
  std::string text = e.code;
  if (!e.where.empty()) text += " " + e.where;
  text += ": " + e.reason;
  if (!e.hint.empty()) text += " (" + e.hint + ")";
  return text;
}

std::int32_t number(const py::handle& given) {
  if (!py::isinstance<py::int_>(given)) throw py::type_error("cpu, pid, tid: None, an int, or several");
  try {
    return given.cast<std::int32_t>();
  } catch (const py::cast_error&) {
    throw py::value_error("cpu, pid, tid: out of range");
  }
}

std::vector<std::int32_t> numbers(const py::object& given) {
  if (given.is_none()) return {};
  if (py::isinstance<py::int_>(given)) return {number(given)};
  std::vector<std::int32_t> out;
  for (const py::handle item : py::iter(given)) out.push_back(number(item));
  // None is all; an empty list would be nothing.
  if (out.empty()) throw py::value_error("cpu, pid, tid: an empty sequence");
  return out;
}

asof::TimeRange time_range(const py::object& given) {
  try {
    const auto pair = given.cast<std::pair<std::optional<asof::Time>, std::optional<asof::Time>>>();
    return {pair.first.value_or(asof::kTimeMin), pair.second.value_or(asof::kTimeMax)};
  } catch (const py::cast_error&) {
    throw py::type_error("time: None, or a pair of which each is None or an int");
  }
}

py::object optional_number(const std::optional<std::uint64_t>& number) {
  if (!number) return py::none();
  return py::int_(*number);
}

struct Paths {
  std::optional<std::string> symfs, vmlinux, kallsyms, kcore, kcore_end, modules, buildid_dir;
};

asof::Capture open(const std::string& path, const Paths& p, bool host_files, bool force) {
  asof::OpenOptions options;
  options.symfs = p.symfs.value_or("");
  options.vmlinux = p.vmlinux.value_or("");
  options.kallsyms = p.kallsyms.value_or("");
  options.kcore = p.kcore.value_or("");
  options.kcore_end = p.kcore_end.value_or("");
  options.modules_dir = p.modules.value_or("");
  options.buildid_dir = p.buildid_dir.value_or("");
  options.host_files = host_files;
  options.force = force;
  auto opened = [&] {
    const py::gil_scoped_release release;
    return asof::Capture::open(path, options);
  }();
  if (!opened) raise(opened.error());
  return *std::move(opened);
}

// str, bytes or os.PathLike.
std::string path_of(const py::object& path) {
  return py::module_::import("os").attr("fsdecode")(path).cast<std::string>();
}

std::optional<std::string> optional_path(const py::object& path) {
  if (path.is_none()) return std::nullopt;
  return path_of(path);
}

const char* severity_name(asof::Severity s) {
  switch (s) {
    case asof::Severity::kInfo:
      return "info";
    case asof::Severity::kLoss:
      return "loss";
    case asof::Severity::kError:
      break;
  }
  return "error";
}

void bind_info(py::module_& m) {
  py::class_<asof::TraceStream>(m, "Stream")
      .def_readonly("name", &asof::TraceStream::name)
      .def_property_readonly("cpu", [](const asof::TraceStream& s) { return id_object(s.cpu); })
      .def_property_readonly("tid", [](const asof::TraceStream& s) { return id_object(s.tid); })
      .def_readonly("bytes", &asof::TraceStream::bytes)
      .def("__repr__", [](const asof::TraceStream& s) { return "<asof.Stream " + s.name + ">"; });
  py::class_<asof::Notice>(m, "Notice")
      .def_property_readonly("severity", [](const asof::Notice& n) { return severity_name(n.severity); })
      .def_readonly("code", &asof::Notice::code)
      .def_readonly("where", &asof::Notice::where)
      .def_readonly("reason", &asof::Notice::reason)
      .def_readonly("hint", &asof::Notice::hint)
      .def_readonly("count", &asof::Notice::count)
      .def("__repr__",
           [](const asof::Notice& n) { return "<asof.Notice " + n.code + ": " + n.reason + ">"; });
}

void bind_capture(py::module_& m) {
  CaptureClass capture(m, "Capture");
  const auto text = [&](const char* name, std::string asof::CaptureInfo::*member) {
    capture.def_property_readonly(name, [member](const asof::Capture& c) { return c.info().*member; });
  };
  text("path", &asof::CaptureInfo::path);
  text("kind", &asof::CaptureInfo::kind);
  text("machine", &asof::CaptureInfo::machine);
  text("hostname", &asof::CaptureInfo::hostname);
  text("os_release", &asof::CaptureInfo::os_release);
  text("command_line", &asof::CaptureInfo::command_line);
  capture.def_property_readonly("streams", [](const asof::Capture& c) { return c.info().streams; })
      .def_property_readonly("notices",
                             [](const asof::Capture& c) {
                               return std::vector<asof::Notice>(c.notices().begin(), c.notices().end());
                             })
      .def("comm", &asof::Capture::comm, py::arg("tid"), py::arg("time"))
      .def("__repr__", [](const asof::Capture& c) { return "<asof.Capture " + c.info().path + ">"; });
  add_text_methods(capture);
  add_record_methods(capture);
  add_column_methods(capture);
}

}  // namespace

void raise(const asof::Error& e) {
  const py::object type = py::module_::import("asof._asof").attr("Error");
  const py::object error = type(message(e));
  error.attr("code") = e.code;
  error.attr("where") = e.where;
  error.attr("offset") = optional_number(e.offset);
  error.attr("reason") = e.reason;
  error.attr("hint") = e.hint;
  PyErr_SetObject(type.ptr(), error.ptr());
  throw py::error_already_set();
}

asof::Filter make_filter(const py::object& cpu, const py::object& pid, const py::object& tid,
                         const py::object& time, const std::string& order, unsigned jobs) {
  asof::Filter f;
  f.cpus = numbers(cpu);
  f.pids = numbers(pid);
  f.tids = numbers(tid);
  if (!time.is_none()) f.time = time_range(time);
  if (order != "time" && order != "stream") throw py::value_error("order: 'time' or 'stream'");
  f.order = order == "time" ? asof::Order::kTime : asof::Order::kStream;
  f.jobs = jobs;
  return f;
}

}  // namespace asof_python

PYBIND11_MODULE(_asof, m) {
  using namespace asof_python;
  m.attr("Error") = py::reinterpret_steal<py::object>(PyErr_NewExceptionWithDoc(
      "asof.Error", "What stops the work: code, where, offset, reason, hint.", PyExc_Exception, nullptr));
  bind_info(m);
  bind_text(m);
  bind_records(m);
  bind_columns(m);
  bind_capture(m);
  m.def("version", &asof::version);
  m.def(
      "open",
      [](const py::object& path, const py::object& symfs, const py::object& vmlinux,
         const py::object& kallsyms, const py::object& kcore, const py::object& kcore_end,
         const py::object& modules, const py::object& buildid_dir, bool host_files, bool force) {
        const Paths paths{optional_path(symfs),      optional_path(vmlinux),   optional_path(kallsyms),
                          optional_path(kcore),      optional_path(kcore_end), optional_path(modules),
                          optional_path(buildid_dir)};
        return open(path_of(path), paths, host_files, force);
      },
      py::arg("path"), py::kw_only(), py::arg("symfs") = py::none(), py::arg("vmlinux") = py::none(),
      py::arg("kallsyms") = py::none(), py::arg("kcore") = py::none(), py::arg("kcore_end") = py::none(),
      py::arg("modules") = py::none(), py::arg("buildid_dir") = py::none(), py::arg("host_files") = true,
      py::arg("force") = false,
      "Opens a capture: perf.data as file or directory, bundle.json, trace.json of LLDB, a block stream.");
}
