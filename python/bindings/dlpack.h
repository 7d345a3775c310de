// DLPack export of Array: https://dmlc.github.io/dlpack/latest/c_api.html, versions 0 and 1.
#pragma once

#include "bindings.h"

namespace hotloop::python {

// The capsule that consumers of `self.__dlpack__()` get. Version 1 says that the memory is read-only; version 0 cannot, and so
// is given a copy.
nb::object to_dlpack(nb::handle self, nb::object stream, nb::object max_version, nb::object dl_device, nb::object copy);

}  // namespace hotloop::python
