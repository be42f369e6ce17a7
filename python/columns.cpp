// Instructions as columns: each a buffer that NumPy and memoryview read without a copy.
#include <pybind11/stl.h>

#include <memory>
#include <string>

#include "module.h"

namespace asof_python {
namespace {

struct Table {
  std::vector<std::uint64_t> ip;
  std::vector<std::int64_t> time;
  std::vector<std::int32_t> cpu, pid, tid;
  std::vector<std::uint32_t> source, version;
  std::vector<std::uint8_t> length, branch, confidence, flags;

  void add(const asof::Instruction& i) {
    ip.push_back(i.ip);
    time.push_back(i.time);
    cpu.push_back(i.cpu);
    pid.push_back(i.pid);
    tid.push_back(i.tid);
    source.push_back(i.source);
    version.push_back(i.version);
    length.push_back(i.size);
    branch.push_back(static_cast<std::uint8_t>(i.branch));
    confidence.push_back(static_cast<std::uint8_t>(i.confidence));
    flags.push_back(i.flags);
  }
};

// One column; keeps the whole table.
struct Column {
  std::shared_ptr<const Table> table;
  const void* data;
  py::ssize_t size;  // elements
  py::ssize_t item;  // bytes
  std::string format;
};

struct Columns {
  std::shared_ptr<const Table> table;
};

template <class T>
py::object view(const Columns& columns, const std::vector<T>& values) {
  static constexpr T kNone{};  // a buffer has an address, also without elements
  const py::object column = py::cast(
      Column{columns.table, values.empty() ? &kNone : values.data(), static_cast<py::ssize_t>(values.size()),
             static_cast<py::ssize_t>(sizeof(T)), py::format_descriptor<T>::format()});
  PyObject* const made = PyMemoryView_FromObject(column.ptr());
  if (made == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(made);
}

Columns instruction_columns(const asof::Capture& capture, const asof::Filter& filter,
                            std::optional<std::size_t> limit) {
  const py::gil_scoped_release release;
  auto table = std::make_shared<Table>();
  auto records = capture.instructions(filter);
  std::size_t left = limit.value_or(SIZE_MAX);
  while (left != 0) {
    const auto batch = records.next();
    if (batch.empty()) break;
    for (const asof::Instruction& i : batch.first(std::min(left, batch.size()))) table->add(i);
    left -= std::min(left, batch.size());
  }
  return {std::move(table)};
}

template <class T>
void def_column(py::class_<Columns>& columns, const char* name, std::vector<T> Table::*member) {
  columns.def_property_readonly(
      name, [member](const Columns& c) { return view(c, static_cast<const Table&>(*c.table).*member); });
}

}  // namespace

void bind_columns(py::module_& m) {
  py::class_<Column>(m, "_Column", py::buffer_protocol()).def_buffer([](Column& c) {
    return py::buffer_info(const_cast<void*>(c.data), c.item, c.format, 1, {c.size}, {c.item}, true);
  });
  py::class_<Columns> columns(m, "Columns");
  columns.def("__len__", [](const Columns& c) { return c.table->ip.size(); });
  def_column(columns, "ip", &Table::ip);
  def_column(columns, "time", &Table::time);
  def_column(columns, "cpu", &Table::cpu);
  def_column(columns, "pid", &Table::pid);
  def_column(columns, "tid", &Table::tid);
  def_column(columns, "source", &Table::source);
  def_column(columns, "version", &Table::version);
  def_column(columns, "length", &Table::length);
  def_column(columns, "branch", &Table::branch);
  def_column(columns, "confidence", &Table::confidence);
  def_column(columns, "flags", &Table::flags);
}

void add_column_methods(CaptureClass& capture) {
  capture.def(
      "instruction_columns",
      [](const asof::Capture& c, const py::object& cpu, const py::object& pid, const py::object& tid,
         const py::object& time, const std::string& order, unsigned jobs, std::optional<std::size_t> limit) {
        return instruction_columns(c, make_filter(cpu, pid, tid, time, order, jobs), limit);
      },
      py::kw_only(), py::arg("cpu") = py::none(), py::arg("pid") = py::none(), py::arg("tid") = py::none(),
      py::arg("time") = py::none(), py::arg("order") = "time", py::arg("jobs") = 0,
      py::arg("limit") = py::none(),
      "Executed instructions as columns, at most `limit`. Each column is a read-only memoryview that keeps "
      "the "
      "table alive; numpy.asarray() takes it without a copy. Other arguments: see instructions().");
}

}  // namespace asof_python
