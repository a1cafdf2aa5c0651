# Links between GPUs: NCCL where its header is found. Its library is opened at run time, and only by
# processes that exchange gradients by it (link_nccl.cu), so it is not linked.

if(HEED_NCCL)
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  mark_as_advanced(NCCL_INCLUDE_DIR)
endif()

if(HEED_NCCL AND NCCL_INCLUDE_DIR)
  target_sources(heed PRIVATE src/ops/cuda/link_nccl.cu)
  set_source_files_properties(src/ops/cuda/link_nccl.cu PROPERTIES
                              INCLUDE_DIRECTORIES "${NCCL_INCLUDE_DIR}")
  file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h numbers REGEX "define NCCL_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE "[^0-9;]" "" numbers "${numbers}")
  string(REPLACE ";" "." numbers "${numbers}")
  message(NOTICE "heed ${PROJECT_VERSION}: with NCCL ${numbers}")
else()
  target_sources(heed PRIVATE src/ops/cuda/link_none.cu)
  message(NOTICE "heed ${PROJECT_VERSION}: without NCCL (nccl.h was not found, or HEED_NCCL is OFF)")
endif()
