# The installed package: public headers, the library, and hotloopConfig.cmake for find_package(hotloop).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(HOTLOOP_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/hotloop)

install(DIRECTORY include/hotloop DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS hotloop EXPORT hotloopTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET hotloop_cli)
  install(TARGETS hotloop_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(EXPORT hotloopTargets NAMESPACE hotloop:: DESTINATION ${HOTLOOP_CMAKE_DIR})
install(FILES LICENSE THIRD_PARTY.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

configure_package_config_file(cmake/hotloopConfig.cmake.in ${PROJECT_BINARY_DIR}/hotloopConfig.cmake
                              INSTALL_DESTINATION ${HOTLOOP_CMAKE_DIR} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/hotloopConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/hotloopConfig.cmake ${PROJECT_BINARY_DIR}/hotloopConfigVersion.cmake
        DESTINATION ${HOTLOOP_CMAKE_DIR})
