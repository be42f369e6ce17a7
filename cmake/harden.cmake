# asof reads files from strangers: what the compiler and the linker have against damage that gets past the code. Sanitizers
# find more, and some of this is in their way. docs/speed.md has what it costs.
if(ASOF_HARDEN AND NOT ASOF_SANITIZE)
  include(CheckPIESupported)
  check_pie_supported(LANGUAGES C CXX)
  set(CMAKE_POSITION_INDEPENDENT_CODE ON)
  include(CheckCXXCompilerFlag)
  foreach(flag -fstack-protector-strong -fstack-clash-protection -fcf-protection -mbranch-protection=standard)
    string(MAKE_C_IDENTIFIER "ASOF_HAS${flag}" has)
    check_cxx_compiler_flag(${flag} ${has})
    if(${has})
      target_compile_options(asof_flags INTERFACE ${flag})
    endif()
  endforeach()
  # Needs optimisation, and what a distribution has set before is not to be warned of.
  target_compile_options(asof_flags INTERFACE $<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE> $<$<NOT:$<CONFIG:Debug>>:-D_FORTIFY_SOURCE=3>)
  # The same program from whatever folder it is built in, so that others can check what was built.
  target_compile_options(asof_flags INTERFACE -ffile-prefix-map=${CMAKE_SOURCE_DIR}/= -ffile-prefix-map=${CMAKE_BINARY_DIR}/=build/)
  add_link_options(-Wl,-z,relro,-z,now)
endif()
