# find_package(pipethreader): gives pipethreader::pipethreader.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(fmt)
find_dependency(nlohmann_json)
find_dependency(tomlplusplus)
include(${CMAKE_CURRENT_LIST_DIR}/pipethreader-targets.cmake)
