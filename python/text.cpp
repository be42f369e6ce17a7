// Text at a time, changes, symbols, sources.
#include <pybind11/stl.h>

#include "module.h"

namespace asof_python {
namespace {

struct PySource {
  std::string kind, name, build_id;
  std::uint64_t id;
};

struct PySymbol {
  std::string name, dso;
  asof::Space space;
  asof::AddressRange range;
  std::uint64_t offset;
};

struct PyChange {
  asof::TextChange change;
  asof::Text keep;  // the bytes live as long
};

PySymbol to_python(const asof::Symbol& s) {
  return {std::string(s.name), std::string(s.dso), s.space, s.range, s.offset};
}

asof::TextImage text_at(const asof::Capture& c, asof::Address address, std::uint64_t size, asof::Time time,
                        asof::Space space) {
  if (size > UINT64_MAX - address) throw py::value_error("the range goes past the last address");
  auto image = c.text().at({address, address + size}, time, space);
  if (!image) raise(image.error());
  return *std::move(image);
}

py::list source_list(const asof::TextImage& image) {
  py::list out;
  for (const asof::SourceRef ref : image.sources) out.append(py::int_(ref));
  return out;
}

}  // namespace

void bind_text(py::module_& m) {
  py::class_<PySource>(m, "Source")
      .def_readonly("kind", &PySource::kind)
      .def_readonly("name", &PySource::name)
      .def_readonly("build_id", &PySource::build_id)
      .def_readonly("id", &PySource::id)
      .def("__repr__", [](const PySource& s) { return "<asof.Source " + s.kind + " " + s.name + ">"; });
  py::class_<PySymbol>(m, "Symbol")
      .def_readonly("name", &PySymbol::name)
      .def_readonly("dso", &PySymbol::dso)
      .def_readonly("space", &PySymbol::space)
      .def_readonly("offset", &PySymbol::offset)
      .def_property_readonly("begin", [](const PySymbol& s) { return s.range.begin; })
      .def_property_readonly("end", [](const PySymbol& s) { return s.range.end; })
      .def("__repr__", [](const PySymbol& s) { return "<asof.Symbol " + s.name + ">"; });
  py::class_<PyChange>(m, "Change")
      .def_property_readonly("address", [](const PyChange& c) { return c.change.address; })
      .def_property_readonly("time", [](const PyChange& c) { return c.change.time; })
      .def_property_readonly("old", [](const PyChange& c) { return bytes_object(c.change.old_bytes); })
      .def_property_readonly("new", [](const PyChange& c) { return bytes_object(c.change.new_bytes); });
  py::class_<asof::TextImage>(m, "TextImage")
      .def_readonly("address", &asof::TextImage::begin)
      .def_property_readonly("bytes", [](const asof::TextImage& i) { return bytes_object(i.bytes); })
      .def_property_readonly("sources", &source_list)
      .def_property_readonly("certain", [](const asof::TextImage& i) { return i.certain(0, i.bytes.size()); })
      .def_property_readonly("doubts",
                             [](const asof::TextImage& i) {
                               return py::bytes(reinterpret_cast<const char*>(i.doubts.data()),
                                                i.doubts.size());
                             })
      .def_property_readonly("known", [](const asof::TextImage& i) { return i.known(0, i.bytes.size()); })
      .def("__len__", [](const asof::TextImage& i) { return i.bytes.size(); });
}

void add_text_methods(CaptureClass& capture) {
  capture
      .def(
          "text_at", &text_at, py::arg("address"), py::arg("size"), py::arg("time"), py::arg("space") = 0,
          "The bytes [address, address + size) as they were at a time (ns). Error E-FILE-091: empty, or more "
          "than 16 MiB.")
      .def_property_readonly("changes",
                             [](const asof::Capture& c) {
                               std::vector<PyChange> out;
                               const asof::Text text = c.text();
                               for (const asof::TextChange& change : text.changes())
                                 out.push_back({change, text});
                               return out;
                             })
      .def(
          "symbol",
          [](const asof::Capture& c, asof::Address address, asof::Time time,
             asof::Space space) -> std::optional<PySymbol> {
            const auto found = c.text().symbol(address, time, space);
            if (!found) return std::nullopt;
            return to_python(*found);
          },
          py::arg("address"), py::arg("time"), py::arg("space") = 0,
          "The symbol that covers an address at a time, or None.")
      .def(
          "symbols",
          [](const asof::Capture& c, const std::string& name) {
            std::vector<PySymbol> out;
            for (const asof::Symbol& s : c.text().symbols(name)) out.push_back(to_python(s));
            return out;
          },
          py::arg("name"), "All symbols of this exact name.")
      .def(
          "source",
          [](const asof::Capture& c, asof::SourceRef ref) {
            const asof::Source s = c.text().source(ref);
            return PySource{std::string(asof::name(s.kind)), std::string(s.name), std::string(s.build_id),
                            s.id};
          },
          py::arg("ref"), "What Instruction.source and TextImage.sources refer to.")
      .def(
          "spaces", [](const asof::Capture& c, std::int32_t pid) { return c.text().spaces(pid); },
          py::arg("pid"));
}

}  // namespace asof_python
