#include "dlpack.h"

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "array.h"
#include "hotloop/error.h"

namespace hotloop::python {
namespace {

// The structures of the DLPack ABI.
struct DLDevice {
  std::int32_t device_type, device_id;
};
struct DLDataType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t *shape, *strides;
  std::uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor tensor;
  void* manager;
  void (*deleter)(DLManagedTensor*);
};
struct DLManagedTensorVersioned {
  std::uint32_t major, minor;
  void* manager;
  void (*deleter)(DLManagedTensorVersioned*);
  std::uint64_t flags;
  DLTensor tensor;
};
constexpr std::int32_t on_cpu = 1;
constexpr std::uint64_t flag_read_only = 1, flag_copied = 2;

DLDataType data_type(DType dtype) {
  const auto bits = static_cast<std::uint8_t>(8 * size_of(dtype));
  switch (dtype) {
    case DType::Bool: return {6, bits, 1};
    case DType::I32:
    case DType::I64: return {0, bits, 1};
    case DType::U32: return {1, bits, 1};
    case DType::F32:
    case DType::F64: break;
  }
  return {2, bits, 1};
}

// What a capsule owns.
template <class Managed> struct Export {
  Managed managed{};
  Array array;
  std::vector<std::int64_t> shape, strides;

  explicit Export(Array a) : array(std::move(a)), shape(array.shape().vec()), strides(shape.size()) {
    std::int64_t stride = 1;
    for (std::size_t i = shape.size(); i-- > 0; stride *= shape[i]) strides[i] = stride;
    managed.tensor = {array.raw(),
                      {on_cpu, 0},
                      static_cast<std::int32_t>(shape.size()),
                      data_type(array.dtype()),
                      shape.data(),
                      strides.data(),
                      0};
    managed.manager = this;
    managed.deleter = [](Managed* m) { delete static_cast<Export*>(m->manager); };
  }
};

template <class Managed> nb::object capsule(std::unique_ptr<Export<Managed>> exported, const char* name) {
  // A consumer renames the capsule; one that still has its name was never consumed.
  const auto destroy = [](PyObject* self) {
    const char* current = PyCapsule_GetName(self);
    if (current == nullptr || std::string_view(current).starts_with("used")) return;
    auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(self, current));
    managed->deleter(managed);
  };
  PyObject* made = PyCapsule_New(&exported->managed, name, destroy);
  if (made == nullptr) throw nb::python_error();
  (void)exported.release();
  return nb::steal(made);
}

}  // namespace

nb::object to_dlpack(nb::handle self, nb::object stream, nb::object max_version, nb::object dl_device,
                     nb::object copy) {
  const Array& array = live_array(self);
  if (!stream.is_none()) throw UserError("dlpack", "an array in CPU memory has no stream", "a stream", "stream=None");
  if (!dl_device.is_none() && nb::cast<int>(dl_device[0]) != on_cpu)
    throw UserError("dlpack", "the array is in CPU memory", "a request for another device",
                    "export it, then move it with the consumer's own call");
  const bool must_copy = copy.is(nb::handle(Py_True)), may_copy = !copy.is(nb::handle(Py_False));
  if (!max_version.is_none() && nb::cast<int>(max_version[0]) >= 1) {
    auto exported = std::make_unique<Export<DLManagedTensorVersioned>>(must_copy ? array.clone() : array);
    exported->managed.major = 1;
    exported->managed.minor = 0;
    exported->managed.flags = must_copy ? flag_copied : flag_read_only;
    return capsule(std::move(exported), "dltensor_versioned");
  }
  if (!may_copy) throw nb::buffer_error("[dlpack] version 0 cannot say that memory is read-only, so it needs a copy");
  return capsule(std::make_unique<Export<DLManagedTensor>>(array.clone()), "dltensor");
}

}  // namespace hotloop::python
