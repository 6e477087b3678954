# `cmake --install build`: the program, its data, the public headers, and one static library made of all folders, so that
# another project needs only find_package(pipethreader) and pipethreader::pipethreader.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(bundled_objects)
foreach(folder IN LISTS pipethreader_folders)
  list(APPEND bundled_objects $<TARGET_OBJECTS:${folder}>)
endforeach()

if(bundled_objects)
  add_library(pipethreader_bundle STATIC ${bundled_objects})
  set_target_properties(pipethreader_bundle PROPERTIES OUTPUT_NAME pipethreader EXPORT_NAME pipethreader LINKER_LANGUAGE CXX)
  target_compile_features(pipethreader_bundle INTERFACE cxx_std_20)
  target_include_directories(pipethreader_bundle INTERFACE
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/pipethreader/internal>)
  target_compile_definitions(pipethreader_bundle INTERFACE
    "$<INSTALL_INTERFACE:PIPETHREADER_DATA_FOLDER=\"$<INSTALL_PREFIX>/${CMAKE_INSTALL_DATADIR}/pipethreader\">")
  target_link_libraries(pipethreader_bundle PUBLIC fmt::fmt PRIVATE tomlplusplus::tomlplusplus nlohmann_json::nlohmann_json Threads::Threads ${CMAKE_DL_LIBS})
  if(PIPETHREADER_SANITIZE)
    target_link_options(pipethreader_bundle INTERFACE -fsanitize=address,undefined)
  endif()

  install(TARGETS pipethreader_bundle EXPORT pipethreader_targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT pipethreader_targets NAMESPACE pipethreader:: FILE pipethreader-targets.cmake
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/pipethreader)
endif()

if(TARGET pipethreader)
  install(TARGETS pipethreader RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY include/pipethreader DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} OPTIONAL)
# Headers of src/ that the public ones may rest on: the folders of the edge `public` in cmake/edges.txt.
foreach(edge IN LISTS edges)
  if(edge MATCHES "^public:(.*)$")
    string(STRIP "${CMAKE_MATCH_1}" public_folders)
    separate_arguments(public_folders)
    foreach(folder IN LISTS public_folders)
      install(DIRECTORY src/${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/pipethreader/internal
              FILES_MATCHING PATTERN "*.h" PATTERN "*.def")
    endforeach()
  endif()
endforeach()
install(DIRECTORY devices kernels DESTINATION ${CMAKE_INSTALL_DATADIR}/pipethreader OPTIONAL)
install(FILES bench/suites.toml DESTINATION ${CMAKE_INSTALL_DATADIR}/pipethreader/bench)

write_basic_package_version_file(${PROJECT_BINARY_DIR}/pipethreader-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES cmake/pipethreader-config.cmake ${PROJECT_BINARY_DIR}/pipethreader-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/pipethreader)
