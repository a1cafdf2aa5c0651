# Who does the matrix products of the CPU backend: oneDNN where it is found, else plain C alone.

set(HEED_GEMM_LIBS "")
if(HEED_DNNL)
  find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.h)
  find_library(DNNL_LIBRARY dnnl)
  mark_as_advanced(DNNL_INCLUDE_DIR DNNL_LIBRARY)
endif()

if(HEED_DNNL AND DNNL_INCLUDE_DIR AND DNNL_LIBRARY)
  target_sources(heed PRIVATE src/ops/cpu/gemm_dnnl.c)
  target_include_directories(heed PRIVATE ${DNNL_INCLUDE_DIR})
  target_link_libraries(heed PRIVATE ${DNNL_LIBRARY})
  set(HEED_GEMM_LIBS -ldnnl)
  message(NOTICE "heed ${PROJECT_VERSION}: matrix products by oneDNN (${DNNL_LIBRARY})")
else()
  target_sources(heed PRIVATE src/ops/cpu/gemm_none.c)
  message(NOTICE "heed ${PROJECT_VERSION}: matrix products in plain C, slower than with "
                 "oneDNN (package libdnnl-dev)")
endif()
