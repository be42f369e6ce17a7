# cmake --install and cpack: the program (component asof), the shared library (libasof0), and headers, static library,
# pkg-config files and CMake package (libasof-dev). tests/install checks all from outside.
include(CMakePackageConfigHelpers)

file(GLOB public_headers CONFIGURE_DEPENDS include/asof/*.h)
install(FILES ${public_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/asof COMPONENT libasof-dev)
install(TARGETS asof_shared EXPORT asof_shared LIBRARY COMPONENT libasof0 NAMELINK_COMPONENT libasof-dev)
install(TARGETS asof_static EXPORT asof_static ARCHIVE COMPONENT libasof-dev)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/asof)
foreach(linkage shared static)
  install(EXPORT asof_${linkage} NAMESPACE asof:: FILE asof-${linkage}.cmake DESTINATION ${package_dir} COMPONENT libasof-dev)
endforeach()
configure_package_config_file(cmake/asofConfig.cmake.in ${CMAKE_BINARY_DIR}/asofConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/asofConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/asofConfig.cmake ${CMAKE_BINARY_DIR}/asofConfigVersion.cmake
        DESTINATION ${package_dir} COMPONENT libasof-dev)
# From <libdir>/pkgconfig back to the prefix, so that an installed tree can be moved.
file(RELATIVE_PATH up_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
foreach(file asof asof-static)
  configure_file(cmake/${file}.pc.in ${CMAKE_BINARY_DIR}/${file}.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/${file}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT libasof-dev)
endforeach()

install(FILES README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/asof COMPONENT asof)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/asof RENAME copyright COMPONENT asof)
install(FILES docs/api.md examples/kernel_changes.cpp DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libasof-dev COMPONENT libasof-dev)
find_program(DPKG_QUERY dpkg-query)
if(DPKG_QUERY)
  set(sbom ${CMAKE_BINARY_DIR}/share/asof.cdx.json)
  add_custom_command(OUTPUT ${sbom}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/share
    COMMAND ${CMAKE_SOURCE_DIR}/scripts/sbom.sh $<TARGET_FILE:asof> ${PROJECT_VERSION} > ${sbom}
    DEPENDS asof ${CMAKE_SOURCE_DIR}/scripts/sbom.sh VERBATIM)
  add_custom_target(sbom ALL DEPENDS ${sbom})
  install(FILES ${sbom} DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/asof COMPONENT asof)
endif()
foreach(package libasof0 libasof-dev)
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} RENAME copyright COMPONENT ${package})
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME asof)
set(CPACK_PACKAGE_CONTACT "asof developers <asof@localhost>")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL asof libasof0 libasof-dev)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_ASOF_PACKAGE_NAME asof)
set(CPACK_DEBIAN_ASOF_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_ASOF_DESCRIPTION "decoder of Intel PT and Arm CoreSight for kernel code that changes
 Decodes traces of Linux against the code that was in memory as of the instant
 it ran: static keys, ftrace, kprobes, static calls and BPF programs included.")
# The libraries that the program is linked to, with their versions; needs dpkg-dev and file.
find_program(DPKG_SHLIBDEPS dpkg-shlibdeps)
find_program(FILE_PROGRAM file)
if(DPKG_SHLIBDEPS AND FILE_PROGRAM)
  set(CPACK_DEBIAN_ASOF_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_LIBASOF0_PACKAGE_SHLIBDEPS ON)
endif()
set(CPACK_DEBIAN_LIBASOF0_PACKAGE_NAME libasof0)
set(CPACK_DEBIAN_LIBASOF0_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBASOF0_DESCRIPTION "shared library of asof, a decoder of Intel PT and Arm CoreSight
 What programs that are linked to libasof.so.0 need to run.")
set(CPACK_DEBIAN_LIBASOF-DEV_PACKAGE_NAME libasof-dev)
set(CPACK_DEBIAN_LIBASOF-DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_LIBASOF-DEV_PACKAGE_DEPENDS
    "libasof0 (= ${PROJECT_VERSION}), libipt-dev, libiberty-dev, libopencsd-dev, libelf-dev, libdw-dev, libtbb-dev, libzydis-dev, libzstd-dev, libarchive-dev, libfmt-dev")
set(CPACK_DEBIAN_LIBASOF-DEV_DESCRIPTION "library of asof, a decoder of Intel PT and Arm CoreSight
 Headers for C and C++, static library, pkg-config files and CMake package.")
if(TARGET asof_python)
  list(APPEND CPACK_COMPONENTS_ALL python3-asof)
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/python3-asof RENAME copyright COMPONENT python3-asof)
  install(FILES docs/python.md DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/python3-asof COMPONENT python3-asof)
  set(CPACK_DEBIAN_PYTHON3-ASOF_PACKAGE_NAME python3-asof)
  set(CPACK_DEBIAN_PYTHON3-ASOF_PACKAGE_SECTION python)
  # The module is made for one minor version of Python.
  math(EXPR next_minor "${Python3_VERSION_MINOR} + 1")
  set(CPACK_DEBIAN_PYTHON3-ASOF_PACKAGE_DEPENDS
      "libasof0 (= ${PROJECT_VERSION}), python3 (>= 3.${Python3_VERSION_MINOR}), python3 (<< 3.${next_minor})")
  set(CPACK_DEBIAN_PYTHON3-ASOF_PACKAGE_RECOMMENDS "python3-numpy")
  set(CPACK_DEBIAN_PYTHON3-ASOF_DESCRIPTION "Python module of asof, a decoder of Intel PT and Arm CoreSight
 Instructions, calls, gaps and text at a time from Python, and columns for NumPy.")
endif()
include(CPack)
