// Iterators over instructions, blocks, gaps, events and calls. What a Python object shows it owns: it
// outlives its iterator.
#include <pybind11/stl.h>

#include <array>
#include <string>

#include "module.h"

namespace asof_python {
namespace {

struct PyInstruction {
  explicit PyInstruction(const asof::Instruction& i) : record(i) {
    std::copy_n(i.bytes, std::min<std::size_t>(i.size, bytes.size()), bytes.begin());
  }
  asof::Instruction record;
  std::array<std::uint8_t, 16> bytes{};
};

struct PyBlock {
  explicit PyBlock(const asof::Block& b)
      : record(b),
        bytes(reinterpret_cast<const char*>(b.bytes), b.size),
        lengths(reinterpret_cast<const char*>(b.lengths), b.count) {}
  asof::Block record;
  std::string bytes, lengths;
};

struct PyCall {
  explicit PyCall(const asof::Call& c) : record(c), function(c.function), dso(c.dso) {}
  asof::Call record;
  std::string function, dso;
};

struct PyGap {
  explicit PyGap(const asof::Gap& g) : record(g) {}
  asof::Gap record;
};

struct PyEvent {
  explicit PyEvent(const asof::Event& e) : record(e) {}
  asof::Event record;
};

// Refills without the GIL. A second thread that calls meanwhile gets the error that a generator would raise.
template <class T, class Object>
class Iterator {
 public:
  explicit Iterator(asof::Records<T> records)
      : records_(std::make_unique<asof::Records<T>>(std::move(records))) {}
  ~Iterator() {
    const py::gil_scoped_release release;
    records_.reset();  // waits for the decoding threads
  }
  Iterator(const Iterator&) = delete;
  Iterator& operator=(const Iterator&) = delete;

  Object next() {
    if (busy_) throw py::value_error("iterator is in use by another thread");
    if (at_ == batch_.size()) refill();
    if (batch_.empty()) throw py::stop_iteration();
    return Object(batch_[at_++]);
  }

 private:
  void refill() {
    busy_ = true;
    try {
      const py::gil_scoped_release release;
      batch_ = records_->next();
    } catch (...) {
      busy_ = false;
      throw;
    }
    busy_ = false;
    at_ = 0;
  }

  std::unique_ptr<asof::Records<T>> records_;
  std::span<const T> batch_;
  std::size_t at_ = 0;
  bool busy_ = false;
};

template <class T, class Object>
void bind_iterator(py::module_& m, const char* name) {
  using It = Iterator<T, Object>;
  py::class_<It>(m, name)
      .def("__iter__", [](const py::object& self) { return self; })
      .def("__next__", &It::next);
}

template <class Class>
void bind_who(Class& c) {
  using Object = typename Class::type;
  c.def_property_readonly("cpu", [](const Object& o) { return id_object(o.record.cpu); })
      .def_property_readonly("pid", [](const Object& o) { return id_object(o.record.pid); })
      .def_property_readonly("tid", [](const Object& o) { return id_object(o.record.tid); });
}

// What instructions and blocks have alike.
template <class Class>
void bind_code(Class& c) {
  using Object = typename Class::type;
  bind_who(c);
  const auto flag = [&](const char* name, std::uint8_t bit) {
    c.def_property_readonly(name, [bit](const Object& o) { return (o.record.flags & bit) != 0; });
  };
  flag("taken", asof::kTaken);
  flag("after_gap", asof::kAfterGap);
  flag("async_entry", asof::kAsyncEntry);
  flag("transaction", asof::kTransaction);
  c.def_property_readonly("ip", [](const Object& o) { return o.record.ip; })
      .def_property_readonly("time", [](const Object& o) { return time_object(o.record.time); })
      .def_property_readonly("length", [](const Object& o) { return o.record.size; })
      .def_property_readonly("space", [](const Object& o) { return o.record.space; })
      .def_property_readonly("source", [](const Object& o) { return o.record.source; })
      .def_property_readonly("mode", [](const Object& o) { return o.record.mode; })
      .def_property_readonly("branch", [](const Object& o) { return asof::name(o.record.branch); })
      .def_property_readonly("confidence", [](const Object& o) { return asof::name(o.record.confidence); });
}

void bind_flow(py::module_& m) {
  py::class_<PyInstruction> instruction(m, "Instruction");
  bind_code(instruction);
  instruction.def_property_readonly("version", [](const PyInstruction& i) { return i.record.version; })
      .def_property_readonly("bytes", [](const PyInstruction& i) {
        return bytes_object({i.bytes.data(), std::min<std::size_t>(i.record.size, i.bytes.size())});
      });
  py::class_<PyBlock> block(m, "Block");
  bind_code(block);
  block.def_property_readonly("count", [](const PyBlock& b) { return b.record.count; })
      .def_property_readonly("target",
                             [](const PyBlock& b) -> py::object {
                               if (b.record.target == 0) return py::none();
                               return py::int_(b.record.target);
                             })
      .def_property_readonly("valid_from", [](const PyBlock& b) { return time_object(b.record.from); })
      .def_property_readonly("valid_until", [](const PyBlock& b) { return time_object(b.record.until); })
      .def_property_readonly("bytes", [](const PyBlock& b) { return py::bytes(b.bytes); })
      .def_property_readonly("lengths", [](const PyBlock& b) { return py::bytes(b.lengths); });
}

void bind_rest(py::module_& m) {
  py::class_<PyGap> gap(m, "Gap");
  bind_who(gap);
  gap.def_property_readonly("code", [](const PyGap& g) { return g.record.code; })
      .def_property_readonly("reason", [](const PyGap& g) { return g.record.reason; })
      .def_property_readonly("first", [](const PyGap& g) { return time_object(g.record.time.first); })
      .def_property_readonly("last", [](const PyGap& g) { return time_object(g.record.time.last); })
      .def_property_readonly("ip", [](const PyGap& g) { return g.record.ip; })
      .def_property_readonly("resume_ip", [](const PyGap& g) { return g.record.resume_ip; })
      .def_property_readonly("begin", [](const PyGap& g) { return g.record.begin; })
      .def_property_readonly("end", [](const PyGap& g) { return g.record.end; })
      .def_property_readonly("file_offset", [](const PyGap& g) { return g.record.file_offset; });
  py::class_<PyEvent> event(m, "Event");
  bind_who(event);
  event.def_property_readonly("kind", [](const PyEvent& e) { return asof::name(e.record.kind); })
      .def_property_readonly("time", [](const PyEvent& e) { return time_object(e.record.time); })
      .def_property_readonly("ip", [](const PyEvent& e) { return e.record.ip; })
      .def_property_readonly("a", [](const PyEvent& e) { return e.record.a; })
      .def_property_readonly("b", [](const PyEvent& e) { return e.record.b; })
      .def_property_readonly("offset", [](const PyEvent& e) { return e.record.offset; });
  py::class_<PyCall> call(m, "Call");
  bind_who(call);
  call.def_readonly("function", &PyCall::function)
      .def_readonly("dso", &PyCall::dso)
      .def_property_readonly("kind", [](const PyCall& c) { return asof::name(c.record.kind); })
      .def_property_readonly("id", [](const PyCall& c) { return c.record.id; })
      .def_property_readonly("parent", [](const PyCall& c) { return c.record.parent; })
      .def_property_readonly("begin", [](const PyCall& c) { return c.record.begin; })
      .def_property_readonly("end", [](const PyCall& c) { return c.record.end; })
      .def_property_readonly("instructions", [](const PyCall& c) { return c.record.instructions; })
      .def_property_readonly("self_instructions", [](const PyCall& c) { return c.record.self_instructions; })
      .def_property_readonly("entry", [](const PyCall& c) { return c.record.entry; })
      .def_property_readonly("call_site", [](const PyCall& c) { return c.record.call_site; })
      .def_property_readonly("version", [](const PyCall& c) { return c.record.version; })
      .def_property_readonly("confidence", [](const PyCall& c) { return asof::name(c.record.confidence); })
      .def_property_readonly("flags", [](const PyCall& c) { return c.record.flags; });
}

// A method of Capture that gives an iterator.
template <class T, class Object>
void def_records(CaptureClass& capture, const char* name, const char* doc,
                 asof::Records<T> (asof::Capture::*records)(const asof::Filter&) const) {
  capture.def(
      name,
      [records](const asof::Capture& c, const py::object& cpu, const py::object& pid, const py::object& tid,
                const py::object& time, const std::string& order, unsigned jobs) {
        return std::make_unique<Iterator<T, Object>>(
            (c.*records)(make_filter(cpu, pid, tid, time, order, jobs)));
      },
      py::kw_only(), py::arg("cpu") = py::none(), py::arg("pid") = py::none(), py::arg("tid") = py::none(),
      py::arg("time") = py::none(), py::arg("order") = "time", py::arg("jobs") = 0, doc);
}

}  // namespace

void bind_records(py::module_& m) {
  bind_flow(m);
  bind_rest(m);
  bind_iterator<asof::Instruction, PyInstruction>(m, "_Instructions");
  bind_iterator<asof::Block, PyBlock>(m, "_Blocks");
  bind_iterator<asof::Gap, PyGap>(m, "_Gaps");
  bind_iterator<asof::Event, PyEvent>(m, "_Events");
  bind_iterator<asof::Call, PyCall>(m, "_Calls");
}

void add_record_methods(CaptureClass& capture) {
  def_records<asof::Instruction, PyInstruction>(
      capture, "instructions",
      "Iterator over executed instructions. cpu, pid, tid: None (all), a number or several. time: (first, "
      "last) in ns, either may be None. order: \"time\" (CPUs merged) or \"stream\" (one after the other). "
      "jobs: decoding threads; 0: one for each CPU. Records do not depend on it.",
      &asof::Capture::instructions);
  def_records<asof::Block, PyBlock>(
      capture, "blocks",
      "Iterator over executions of straight runs of instructions. Arguments: see instructions().",
      &asof::Capture::blocks);
  def_records<asof::Gap, PyGap>(
      capture, "gaps", "Iterator over stretches of trace without flow. Arguments: see instructions().",
      &asof::Capture::gaps);
  def_records<asof::Event, PyEvent>(capture, "events",
                                    "Iterator over packets other than flow. Arguments: see instructions().",
                                    &asof::Capture::events);
  capture.def(
      "calls",
      [](const asof::Capture& c, const py::object& cpu, const py::object& tid, const py::object& time,
         bool by_thread, unsigned jobs) {
        asof::CallOptions options;
        options.filter = make_filter(cpu, py::none(), tid, time, "time", jobs);
        options.tracks = by_thread ? asof::Tracks::kThread : asof::Tracks::kCpu;
        return std::make_unique<Iterator<asof::Call, PyCall>>(c.calls(options));
      },
      py::kw_only(), py::arg("cpu") = py::none(), py::arg("tid") = py::none(), py::arg("time") = py::none(),
      py::arg("by_thread") = false, py::arg("jobs") = 0,
      "Iterator over activations of functions in the order they end: callees before callers. by_thread: of a "
      "thread, over all CPUs; else parts of it on each CPU.");
}

}  // namespace asof_python
