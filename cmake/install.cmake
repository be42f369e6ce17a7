# cmake --install: the program (component asof), the shared library (libasof0), and headers, static library,
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

install(FILES README.md DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/asof COMPONENT asof)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/asof COMPONENT asof PATTERN man EXCLUDE)
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
if(TARGET asof_python)
  install(FILES docs/python.md DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/python3-asof COMPONENT python3-asof)
endif()
