#include "hotloop/ops.h"
#include "nn/registry.h"

namespace hotloop::nn {
namespace {

class ResidualModule : public BuiltInModule {
 public:
  explicit ResidualModule(Layer layer) : layer_(std::move(layer)) {}

  Tree<Array> init(const Seed& seed, DType dtype, Init init) const override { return layer_.init(seed, dtype, init); }
  Tree<Array> init_buffers(DType dtype) const override { return layer_.init_buffers(dtype); }
  Tree<Value> initial_state(std::int64_t batch, DType dtype) const override {
    return layer_.initial_state(batch, dtype);
  }
  Value apply(const Tree<Value>& params, Value x, Context& context) const override {
    const Value y = layer_.apply(params, x, context);
    if (y.type() != x.type())
      throw UserError("residual", "the layers inside must keep the shape of their input",
                      x.type().str() + " becomes " + y.type().str(), "a linear layer to bring it back");
    return x + y;
  }

 private:
  Layer layer_;
};

}  // namespace

Residual::Residual(Layer layer) : Layer(ResidualModule(std::move(layer))) {}

std::vector<LayerDef> layers_residual() {
  LayerDef def;
  def.name = "residual";
  def.summary = "x plus what the layers inside make of it: shape unchanged";
  def.wrap = [](const Config&, Layer inner) -> Layer { return Residual(std::move(inner)); };
  return {def};
}

}  // namespace hotloop::nn
