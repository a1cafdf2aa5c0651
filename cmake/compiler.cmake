# Language, flags and sanitizers, the same for every target.

if(NOT CMAKE_SIZEOF_VOID_P EQUAL 8)
  message(FATAL_ERROR "heed needs a 64-bit target, because it maps files of any size; pointers of "
                      "${CMAKE_SYSTEM_PROCESSOR} have ${CMAKE_SIZEOF_VOID_P} bytes.")
endif()
if(CMAKE_C_BYTE_ORDER STREQUAL "BIG_ENDIAN")
  message(FATAL_ERROR "heed needs a little-endian target, because it uses the numbers of its files "
                      "as they are; ${CMAKE_SYSTEM_PROCESSOR} is big-endian.")
endif()
set(HEED_ARM64 OFF)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(HEED_ARM64 ON)
endif()

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
# Assertions stay on in release builds: none is in an inner loop, and stopping is better than a
# wrong translation.
# No -ffast-math anywhere: softmax uses -inf and the trainer must see NaN.
set(CMAKE_C_FLAGS_RELEASE "-O2 -g")
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g")

set(CMAKE_C_STANDARD 11)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# nvcc takes other options: see cuda.cmake.
set(c_family "$<COMPILE_LANGUAGE:C,CXX>")
add_compile_options("$<${c_family}:-Wall;-Wextra;-Wshadow>"
                    $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes>)
# Clang's warning that it did not vectorize a loop marked `omp simd` is about speed alone.
add_compile_options("$<$<COMPILE_LANG_AND_ID:C,Clang>:-Wno-pass-failed>")
if(HEED_WERROR)
  add_compile_options($<${c_family}:-Werror>)
endif()

if(HEED_SANITIZE STREQUAL "address")
  set(sanitize -fsanitize=address,undefined -fno-sanitize-recover=all)
elseif(HEED_SANITIZE STREQUAL "thread")
  set(sanitize -fsanitize=thread)
elseif(HEED_SANITIZE)
  message(FATAL_ERROR "HEED_SANITIZE is '${HEED_SANITIZE}', expected address or thread.")
endif()
if(HEED_SANITIZE)
  add_compile_options("$<${c_family}:${sanitize};-fno-omit-frame-pointer>")
  add_link_options(${sanitize})
endif()

# Adds a test or benchmark: one source becomes a program of the same name in `directory` of the
# build tree, which may include the headers of src/. Sets `program` to its name.
function(heed_add_program source directory)
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} EXCLUDE_FROM_ALL ${source})
  set_target_properties(${name} PROPERTIES
                        RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${directory})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${name} PRIVATE heed OpenMP::OpenMP_C Threads::Threads m)
  set(program ${name} PARENT_SCOPE)
endfunction()
