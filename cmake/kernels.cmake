# The kernel files of the CPU backend are compiled once per instruction set; the backend chooses
# among them at run time by what the processor reports, so one binary serves every machine of its
# architecture.

file(GLOB kernel_sources CONFIGURE_DEPENDS src/ops/cpu/*kernels.c)
list(FILTER kernel_sources EXCLUDE REGEX "amx_kernels\\.c$")
set(flags_avx2 -mavx2 -mfma -mf16c)
set(flags_avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mprefer-vector-width=512)
set(flags_dotprod -march=armv8.2-a+dotprod)
set(flags_i8mm -march=armv8.2-a+dotprod+i8mm+bf16)
set(kernel_isas baseline)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  list(APPEND kernel_isas avx2 avx512)
elseif(HEED_ARM64) # the baseline has NEON
  list(APPEND kernel_isas dotprod i8mm)
endif()

# Compiles `sources` with -DISA=isa and the given flags.
function(heed_compile_kernels target isa sources)
  add_library(${target} OBJECT ${sources})
  target_compile_definitions(${target} PRIVATE ISA=${isa})
  target_compile_options(${target} PRIVATE -O3 ${ARGN})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
endfunction()

foreach(isa ${kernel_isas})
  heed_compile_kernels(kernels_${isa} ${isa} "${kernel_sources}" ${flags_${isa}})
  list(APPEND kernel_targets kernels_${isa})
endforeach()

# The kernels for AMX, where the compiler knows it. The tests compile them with an emulation, too.
set(amx_source ${PROJECT_SOURCE_DIR}/src/ops/cpu/amx_kernels.c)
set(flags_tiles -mamx-tile -mamx-int8 -mamx-bf16 -mavx512bf16 -DAMX_INSTRUCTIONS)
if(avx512 IN_LIST kernel_isas)
  include(CheckCCompilerFlag)
  check_c_compiler_flag("${flags_tiles}" HEED_AMX)
  if(HEED_AMX)
    heed_compile_kernels(kernels_amx amx ${amx_source} ${flags_avx512} ${flags_tiles})
    list(APPEND kernel_targets kernels_amx)
    target_compile_definitions(heed PUBLIC HEED_AMX)
  endif()
endif()

foreach(target ${kernel_targets})
  target_sources(heed PRIVATE $<TARGET_OBJECTS:${target}>)
endforeach()
