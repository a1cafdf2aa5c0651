# The CUDA backend: compiled where nvcc is found, left out where not. cuBLASLt is loaded at run time
# (blas.cu) and the runtime is linked statically, so that the program also starts where there is no
# CUDA at all.

set(HEED_CUDA_LIBS "")
if(HEED_CUDA)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(HEED_NVCC nvcc PATHS /usr/local/cuda/bin)
    mark_as_advanced(HEED_NVCC)
    if(HEED_NVCC)
      set(ENV{CUDACXX} ${HEED_NVCC})
    endif()
  endif()
  include(CheckLanguage)
  check_language(CUDA)
endif()

if(HEED_CUDA AND CMAKE_CUDA_COMPILER)
  # Machine code for the A100 and everything like it, and for Hopper; newer GPUs compile the PTX.
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90a-real 90-virtual)
  set(CMAKE_CUDA_FLAGS_RELEASE "-O3")
  enable_language(CUDA)
  set_target_properties(heed PROPERTIES CUDA_STANDARD 20
                        CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}")
  find_package(CUDAToolkit REQUIRED)
  file(GLOB cuda_sources CONFIGURE_DEPENDS src/ops/cuda/*.cu)
  target_sources(heed PRIVATE ${cuda_sources})
  target_compile_definitions(heed PUBLIC HEED_CUDA)
  target_compile_options(heed PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers>")
  if(HEED_WERROR)
    target_compile_options(heed PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>")
  endif()
  target_link_libraries(heed PRIVATE CUDA::cudart_static ${CMAKE_DL_LIBS})
  set(HEED_CUDA_LIBS -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt)
  message(NOTICE "heed ${PROJECT_VERSION}: with CUDA ${CUDAToolkit_VERSION}")
else()
  message(NOTICE "heed ${PROJECT_VERSION}: without CUDA (nvcc was not found, or HEED_CUDA is OFF)")
endif()
