#include "core/nearest.h"
#include "hotloop/ops.h"
#include "nn/registry.h"

namespace hotloop::nn {
namespace {

struct ActivationFunction {
  const char* name;
  const char* summary;
  Value (*function)(Value);
};
constexpr ActivationFunction functions[] = {
    {"gelu", "x times the normal distribution function of x, exact: shape unchanged", gelu},
    {"relu", "max(x, 0): shape unchanged", relu},
    {"sigmoid", "1 / (1 + exp(-x)): shape unchanged", sigmoid},
    {"softplus", "log(1 + exp(x)): shape unchanged", softplus},
    {"tanh", "hyperbolic tangent: shape unchanged", tanh},
};

class ActivationModule : public Module {
 public:
  explicit ActivationModule(const std::string& name) {
    std::vector<std::string> names;
    for (const ActivationFunction& f : functions) {
      names.push_back(f.name);
      if (name == f.name) function_ = f.function;
    }
    if (function_ == nullptr)
      throw UserError("activation", "the function must be one that exists", "'" + name + "'",
                      nearest_hint(name, names));
  }

  Tree<Array> init(std::uint64_t, DType, Init) const override { return {}; }
  Value apply(const Tree<Value>&, Value x, Context&) const override { return function_(x); }

 private:
  Value (*function_)(Value) = nullptr;
};

}  // namespace

Activation::Activation(const std::string& name) : Layer(ActivationModule(name)) {}

std::vector<LayerDef> layers_activation() {
  std::vector<LayerDef> defs;
  for (const ActivationFunction& f : functions)
    defs.push_back({f.name, f.summary, {}, [name = f.name](const Config&, const ValueType&) -> Layer {
                      return Activation(name);
                    }});
  return defs;
}

}  // namespace hotloop::nn
