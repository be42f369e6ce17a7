# asof_join(TARGET): where ASOF_UNITY is on, the files of a folder are compiled as one, which takes less than half of the time. Preset
# `dev` does not, so that a file that lacks an include is found, and a change compiles one file. Names in unnamed namespaces
# should be different within a folder; these files have some that are not.
set(asof_unity_alone
    arch/arm64/reference.cpp arch/arm64/sync.cpp arch/x86/reference_sum.cpp
    decoder/bpf_text/bpf_text_losses.cpp decoder/bundle/bundle_etm.cpp
    decoder/coresight/cs_frames.cpp decoder/model/symbols.cpp  # g++ warns of members of unnamed namespaces outside of a main file
    decoder/kernel_text/kernel_text_files.cpp decoder/kernel_text/kernel_text_unclaimed.cpp
    decoder/model/demangle.cpp  # libiberty's header and <string.h> declare basename()
    decoder/module/module_layout.cpp decoder/module/module_patches.cpp
    decoder/perf/perf_records_tool.cpp decoder/user_text/user_text_jit.cpp
    tools/validate/truth.cpp tools/query/database.cpp tools/query/sql_guard.cpp
    tools/script/script_event_names.cpp tools/script/script_options.cpp tools/script/script_printer.cpp
    tests/arch/arm64/insn_test.cpp tests/arch/arm64/stable_text_test.cpp
    tests/arch/x86/overlapping_programs_test.cpp tests/arch/x86/packet_list_test.cpp tests/arch/x86/silent_storm_test.cpp
    tests/decoder/bpf_text/bpf_text_test.cpp tests/decoder/user_text/user_text_test.cpp tests/decoder/user_text/user_tasks_test.cpp tests/decoder/user_text/vdso_test.cpp
    tests/support/case_capture.cpp tests/support/case_trace.cpp tests/support/decode_capture.cpp tests/support/fault_captures.cpp
    tests/support/perf_records_writer.cpp tests/support/reencode.cpp tests/support/shadow_stacks.cpp tests/support/truth_counter.cpp
    tests/tools/board/true_stacks_test.cpp tests/tools/output/time_windows_test.cpp tests/tools/cli/words_cli_test.cpp tests/tools/demo/demo_test.cpp)
set(asof_unity_folders_alone decoder/live decoder/lines decoder/open api tests/textstore tools)

function(asof_join target)
  if(NOT ASOF_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} NORMALIZE OUTPUT_VARIABLE path)
    cmake_path(RELATIVE_PATH path BASE_DIRECTORY ${CMAKE_SOURCE_DIR})
    cmake_path(GET path PARENT_PATH folder)
    if(NOT path MATCHES "^\\.\\./|^build/" AND NOT path IN_LIST asof_unity_alone AND NOT folder IN_LIST asof_unity_folders_alone)
      string(MAKE_C_IDENTIFIER ${folder} group)
      # Not all of a large folder, so that one file's compiler neither needs gigabytes nor is waited for.
      math(EXPR count_${group} "0${count_${group}} + 1")
      math(EXPR part "${count_${group}} / 15")
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group}_${part})
    endif()
  endforeach()
endfunction()
