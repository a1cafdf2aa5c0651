# Messages between processes: Open MPI where its headers are found. Its library is opened at run time,
# and only by processes that mpirun or srun has started, so it is not linked.

if(HEED_MPI)
  pkg_check_modules(ompi QUIET ompi-c)
endif()

if(HEED_MPI AND ompi_FOUND)
  target_sources(heed PRIVATE src/cluster/wire_mpi.c)
  set_source_files_properties(src/cluster/wire_mpi.c PROPERTIES
                              INCLUDE_DIRECTORIES "${ompi_INCLUDE_DIRS}")
  message(NOTICE "heed ${PROJECT_VERSION}: with Open MPI ${ompi_VERSION}")
else()
  target_sources(heed PRIVATE src/cluster/wire_none.c)
  message(NOTICE "heed ${PROJECT_VERSION}: without MPI (package libopenmpi-dev was not found, or "
                 "HEED_MPI is OFF)")
endif()
