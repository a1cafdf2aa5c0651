# The library for the matrix products of the CPU backend: oneDNN where it is found, else plain C. Of
# oneDNN only kernels for AVX-512 are used, so it is not looked for on ARM64.

set(HEED_GEMM_LIBS "")
if(HEED_ARM64)
  set(HEED_DNNL OFF)
endif()
if(HEED_DNNL)
  find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.h)
  find_library(DNNL_LIBRARY dnnl)
  mark_as_advanced(DNNL_INCLUDE_DIR DNNL_LIBRARY)
endif()

if(HEED_DNNL AND DNNL_INCLUDE_DIR AND DNNL_LIBRARY)
  target_sources(heed PRIVATE src/ops/cpu/gemm_dnnl.c src/ops/cpu/guard.cc)
  # C++ exceptions of oneDNN pass through the C functions that call it (guard.h).
  set_source_files_properties(src/ops/cpu/gemm_dnnl.c PROPERTIES COMPILE_OPTIONS -fexceptions)
  target_include_directories(heed PRIVATE ${DNNL_INCLUDE_DIR})
  target_link_libraries(heed PRIVATE ${DNNL_LIBRARY})
  set(HEED_GEMM_LIBS -ldnnl)
  message(NOTICE "heed ${PROJECT_VERSION}: matrix products by oneDNN (${DNNL_LIBRARY})")
elseif(HEED_ARM64)
  target_sources(heed PRIVATE src/ops/cpu/gemm_none.c)
  message(NOTICE "heed ${PROJECT_VERSION}: for ARM64, matrix products in plain C and NEON")
else()
  target_sources(heed PRIVATE src/ops/cpu/gemm_none.c)
  message(NOTICE "heed ${PROJECT_VERSION}: matrix products in plain C, slower than with "
                 "oneDNN (package libdnnl-dev)")
endif()
