# The kernel files of the CPU backend are compiled once per instruction set; the backend chooses
# among them at run time by cpuid, so one binary serves every machine of its architecture.

file(GLOB kernel_sources CONFIGURE_DEPENDS src/ops/cpu/*kernels.c)

function(heed_add_kernels isa)
  add_library(kernels_${isa} OBJECT ${kernel_sources})
  target_compile_definitions(kernels_${isa} PRIVATE ISA=${isa})
  target_compile_options(kernels_${isa} PRIVATE -O3 ${ARGN})
  target_include_directories(kernels_${isa} PRIVATE include src)
  target_sources(heed PRIVATE $<TARGET_OBJECTS:kernels_${isa}>)
  set(kernel_targets ${kernel_targets} kernels_${isa} PARENT_SCOPE)
endfunction()

heed_add_kernels(baseline)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  heed_add_kernels(avx2 -mavx2 -mfma -mf16c)
  heed_add_kernels(avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma
                   -mprefer-vector-width=512)
endif()
