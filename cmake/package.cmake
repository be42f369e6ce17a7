# cpack: Debian packages of what is installed, as lintian wants them. tests/install checks them.
set(packages asof libasof0 libasof-dev)
if(TARGET asof_python)
  list(APPEND packages python3-asof)
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME asof)
set(CPACK_PACKAGE_CONTACT "asof maintainers <maintainers@asof.example>" CACHE STRING "who made the packages")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL ${packages})
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)

# What every package has: whose it is, and what changed. gzip -n: no time, so that it is the same every time.
find_program(GZIP gzip REQUIRED)
file(STRINGS CHANGELOG.md released REGEX "^## [0-9.]+ \\([0-9-]+\\)" LIMIT_COUNT 1)
string(REGEX REPLACE ".*\\(([0-9-]+)\\)" "\\1" released "${released}")
execute_process(COMMAND date -u -R -d "${released}" OUTPUT_VARIABLE RELEASE_DATE OUTPUT_STRIP_TRAILING_WHITESPACE)
string(SUBSTRING "${released}" 0 4 RELEASE_YEAR)
set(debian ${CMAKE_BINARY_DIR}/debian)
foreach(file copyright changelog)
  configure_file(cmake/debian/${file}.in ${debian}/${file} @ONLY)
endforeach()
execute_process(COMMAND ${GZIP} -9nc ${debian}/changelog OUTPUT_FILE ${debian}/changelog.Debian.gz)
execute_process(COMMAND ${GZIP} -9nc ${CMAKE_SOURCE_DIR}/CHANGELOG.md OUTPUT_FILE ${debian}/changelog.gz)
foreach(package ${packages})
  set(statically_linked)
  if(package STREQUAL "asof")
    set(statically_linked "# Programs that are copied to the machine that is recorded.\nasof: statically-linked-binary\n")
  endif()
  install(FILES ${debian}/copyright ${debian}/changelog.Debian.gz ${debian}/changelog.gz
          DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} COMPONENT ${package})
  configure_file(cmake/debian/overrides.in ${debian}/overrides/${package} @ONLY)
  install(FILES ${debian}/overrides/${package} DESTINATION ${CMAKE_INSTALL_DATADIR}/lintian/overrides COMPONENT ${package})
endforeach()

# The libraries that it is linked to, with their versions; needs dpkg-dev and file. Symbols for debuggers are packages of
# their own.
find_program(DPKG_SHLIBDEPS dpkg-shlibdeps)
find_program(FILE_PROGRAM file)
if(DPKG_SHLIBDEPS AND FILE_PROGRAM)
  set(CPACK_DEBIAN_DEBUGINFO_PACKAGE ON)
  set(CPACK_DEBIAN_ASOF_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_LIBASOF0_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
  set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY =)
  set(CPACK_DEBIAN_PYTHON3-ASOF_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR}/api)
else()
  set(CPACK_STRIP_FILES ON)
endif()

set(this_version "(= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")
set(CPACK_DEBIAN_ASOF_PACKAGE_NAME asof)
set(CPACK_DEBIAN_ASOF_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_ASOF_PACKAGE_SUGGESTS "linux-perf, libdebuginfod1, libtraceevent1")
set(CPACK_DEBIAN_ASOF_DESCRIPTION "decoder of Intel PT and Arm CoreSight for kernel code that changes
 Decodes traces of Linux against the code that was in memory as of the instant
 it ran: static keys, ftrace, kprobes, static calls and BPF programs included.")

set(CPACK_DEBIAN_LIBASOF0_PACKAGE_NAME libasof0)
set(CPACK_DEBIAN_LIBASOF0_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBASOF0_PACKAGE_CONTROL_EXTRA ${CMAKE_SOURCE_DIR}/cmake/debian/triggers)
set(CPACK_DEBIAN_LIBASOF0_DESCRIPTION "shared library of asof, a decoder of Intel PT and Arm CoreSight
 What programs that are linked to libasof.so.0 need to run.")

set(CPACK_DEBIAN_LIBASOF-DEV_PACKAGE_NAME libasof-dev)
set(CPACK_DEBIAN_LIBASOF-DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_LIBASOF-DEV_PACKAGE_DEPENDS
    "libasof0 ${this_version}, libipt-dev, libiberty-dev, libopencsd-dev, libelf-dev, libdw-dev, libtbb-dev, libzydis-dev, libzstd-dev, libarchive-dev, libfmt-dev, zlib1g-dev")
set(CPACK_DEBIAN_LIBASOF-DEV_DESCRIPTION "library of asof, a decoder of Intel PT and Arm CoreSight
 Headers for C and C++, static library, pkg-config files and CMake package.")

if(TARGET asof_python)
  set(CPACK_DEBIAN_PYTHON3-ASOF_PACKAGE_NAME python3-asof)
  set(CPACK_DEBIAN_PYTHON3-ASOF_PACKAGE_SECTION python)
  # The module is made for one minor version of Python.
  math(EXPR next_minor "${Python3_VERSION_MINOR} + 1")
  set(CPACK_DEBIAN_PYTHON3-ASOF_PACKAGE_DEPENDS
      "libasof0 ${this_version}, python3 (>= 3.${Python3_VERSION_MINOR}), python3 (<< 3.${next_minor})")
  set(CPACK_DEBIAN_PYTHON3-ASOF_PACKAGE_RECOMMENDS "python3-numpy")
  set(CPACK_DEBIAN_PYTHON3-ASOF_DESCRIPTION "Python module of asof, a decoder of Intel PT and Arm CoreSight
 Instructions, calls, gaps and text at a time from Python, and columns for
 NumPy.")
endif()
set(CPACK_POST_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/cmake/debian/finish.cmake)
include(CPack)
