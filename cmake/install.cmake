# cmake --install and cpack: the program (component asof), and the library with headers, pkg-config file and CMake
# package (component libasof-dev). tests/install checks both from outside.
include(CMakePackageConfigHelpers)

# What <asof/asof.h> needs, and no more.
set(public_headers
  textstore/address.h textstore/builder.h textstore/facts.h textstore/origin.h textstore/result.h
  decoder/model/symbols.h textstore/text_store.h textstore/time.h
  arch/arch.h arch/block.h arch/steps.h arch/stream.h arch/time_conversion.h arch/zeroed.h arch/arm64/arm64.h arch/x86/x86.h
  decoder/model/capture.h decoder/model/code_map.h decoder/model/flow_piece.h decoder/io/notice.h decoder/perf/perf_data.h decoder/pipeline/pipeline.h
  decoder/lines/source_lines.h decoder/model/text_mechanism.h decoder/calls/timeline.h)
foreach(header ${public_headers})
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/asof/${folder} COMPONENT libasof-dev)
endforeach()
install(FILES include/asof/asof.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/asof COMPONENT libasof-dev)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/asof)
foreach(layer textstore arch decoder)
  set_target_properties(asof_${layer} PROPERTIES EXPORT_NAME ${layer})
  target_compile_features(asof_${layer} PUBLIC cxx_std_23)
  # Public headers name each other from the root of the tree.
  target_include_directories(asof_${layer} INTERFACE
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/asof>)
endforeach()
install(TARGETS asof_textstore asof_arch asof_decoder EXPORT asof ARCHIVE COMPONENT libasof-dev)
install(EXPORT asof NAMESPACE asof:: FILE asofTargets.cmake DESTINATION ${package_dir} COMPONENT libasof-dev)
configure_package_config_file(cmake/asofConfig.cmake.in ${CMAKE_BINARY_DIR}/asofConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/asofConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/asofConfig.cmake ${CMAKE_BINARY_DIR}/asofConfigVersion.cmake
        DESTINATION ${package_dir} COMPONENT libasof-dev)
# From <libdir>/pkgconfig back to the prefix, so that an installed tree can be moved.
file(RELATIVE_PATH up_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/asof.pc.in ${CMAKE_BINARY_DIR}/asof.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/asof.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT libasof-dev)

install(FILES README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/asof COMPONENT asof)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/asof RENAME copyright COMPONENT asof)
install(FILES docs/api.md examples/kernel_changes.cpp DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libasof-dev COMPONENT libasof-dev)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libasof-dev RENAME copyright COMPONENT libasof-dev)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME asof)
set(CPACK_PACKAGE_CONTACT "asof developers <asof@localhost>")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL asof libasof-dev)
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
endif()
set(CPACK_DEBIAN_LIBASOF-DEV_PACKAGE_NAME libasof-dev)
set(CPACK_DEBIAN_LIBASOF-DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_LIBASOF-DEV_PACKAGE_DEPENDS
    "libipt-dev, libopencsd-dev, libelf-dev, libdw-dev, libtbb-dev, libzydis-dev, libzstd-dev, libarchive-dev, libfmt-dev")
set(CPACK_DEBIAN_LIBASOF-DEV_DESCRIPTION "library of asof, a decoder of Intel PT and Arm CoreSight
 Headers, static libraries, pkg-config file and CMake package.")
include(CPack)
