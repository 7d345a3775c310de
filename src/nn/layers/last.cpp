#include <utility>

#include "hotloop/ops.h"
#include "nn/registry.h"

namespace hotloop::nn {
namespace {

class LastModule : public BuiltInModule {
 public:
  Tree<Array> init(const Seed&, DType, Init) const override { return {}; }
  Value apply(const Tree<Value>&, Value x, Context& context) const override {
    if (x.rank() < 2 || x.shape()[1] == 0)
      throw UserError("last", "the input must be a sequence (batch, time, ...) of at least one step", x.type().str());
    Value lengths = std::exchange(context.lengths, Value{});
    if (!lengths.defined()) return take(x, 1, -1);
    lengths = minimum(lengths, like(lengths, static_cast<double>(x.shape()[1])));  // of a row with more there are these
    // A sum that one step takes part in: it stays inside the row, which a gather from (batch * time) would not.
    const Value from_here = valid_steps(x, lengths), from_next = valid_steps(x, lengths - constant(1, DType::I32));
    return reduce_sum(select(bit_xor(from_here, from_next), x, zeros_like(x)), {1});
  }
};

}  // namespace

Last::Last() : Layer(LastModule()) {}

std::vector<LayerDef> layers_last() {
  return {{"last",
           "the last step of a sequence: (batch, time, ...) -> (batch, ...)",
           {},
           [](const Config&, const ValueType&) -> Layer { return Last(); }}};
}

}  // namespace hotloop::nn
