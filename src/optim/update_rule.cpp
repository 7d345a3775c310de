#include "hotloop/ops.h"
#include "hotloop/optim.h"

namespace hotloop::optim {

Tree<Value> UpdateRule::traced_init(const Tree<Value>& params) const {
  const Tree<Array> zeros = params.map([](Value p) { return Array::zeros(p.dtype(), p.shape()); });
  return init(zeros).map([](const Array& a) {
    for (std::int64_t i = 0; i < a.size(); ++i)
      if (a.at(i) != 0) return constant(a);
    return constant(0, a.dtype(), a.shape());  // a number in the program, in place of an array
  });
}

}  // namespace hotloop::optim
