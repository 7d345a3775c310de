#include "core/print_number.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "nn/registry.h"
#include "ode/registry.h"

#include <limits>

namespace hotloop::nn {
namespace {

class NeuralOdeModule : public BuiltInModule {
 public:
  NeuralOdeModule(Layer field, double t1, std::int64_t saves, ode::Solver solver, ode::Options options)
      : field_(std::move(field)), t1_(t1), solver_(std::move(solver)), options_(std::move(options)) {
    if (!(t1 > 0)) throw UserError("ode", "t1 must be positive", print_number(t1));
    if (saves < 0) throw UserError("ode", "saves must not be negative", std::to_string(saves));
    if (field_.init_buffers().num_leaves() > 0)
      throw UserError("ode", "the layers inside must not keep running values, which a field has no place for",
                      "a layer with buffers, as batch_norm", "layer_norm");
    std::vector<double> ts;
    for (std::int64_t k = 1; k <= saves; ++k)
      ts.push_back(k == saves ? t1 : t1 * static_cast<double>(k) / static_cast<double>(saves));
    options_.saveat = saves > 0 ? ode::SaveAt::times(ts) : ode::SaveAt::end();
  }

  Tree<Array> init(const Seed& seed, DType dtype, Init init) const override { return field_.init(seed, dtype, init); }

  Value apply(const Tree<Value>& params, Value x, Context& context) const override {
    if (x.rank() < 2 || !is_float(x.dtype()))
      throw UserError("ode", "the input must be rows of floats, (batch, ...)", x.type().str(),
                      is_float(x.dtype()) ? "expand_dims() for the batch" : "cast() it to f32");
    std::vector<Value> inputs = params.flatten();
    const std::size_t num_params = inputs.size();
    std::vector<int> axes(num_params, -1);
    // A row's own key serves its whole solve: one field, with one mask.
    const Value keys = context.key.defined() ? random_bits(context.key, {x.shape()[0], 2}) : Value{};
    const std::size_t at_key = num_params + 1, at_lengths = at_key + (keys.defined() ? 1 : 0);
    for (const Value& each : {x, keys, context.lengths})
      if (each.defined()) {
        inputs.push_back(each);
        axes.push_back(0);
      }
    const auto solve_row = [&](std::span<const Value> in) {
      ode::Options options = options_;
      options.args = params.unflatten(in.first(num_params));
      const auto field = [&](Value, const Tree<Value>& y, const Tree<Value>& args) {
        Context inner;
        inner.training = context.is_training();
        inner.reverse = context.reverse;
        inner.padding_is_zero = context.padding_is_zero;
        if (keys.defined()) inner.key = in[at_key];
        if (context.lengths.defined()) inner.lengths = expand_dims(in[at_lengths], 0);
        const Value row = expand_dims(y.leaf(), 0), slope = field_.apply(args, row, inner);
        if (slope.type() != row.type())
          throw UserError("ode", "the layers inside must keep the shape of their input",
                          row.type().str() + " becomes " + slope.type().str(), "a linear layer to bring it back");
        return Tree<Value>(reshape(slope, y.leaf().shape()));
      };
      const ode::Solution solution = ode::solve(field, solver_, 0, t1_, Tree<Value>(in[num_params]), options);
      return std::vector<Value>{reached(solution)};
    };
    const Value y = vmap(solve_row, axes)(inputs)[0];
    if (y.rank() != x.rank()) context.lengths = {};  // the steps of the input are no axis of time any more
    return y;
  }

 private:
  // Rows that were not reached are inf, so that training tells of a loss that is not finite; so is an end that was not.
  Value reached(const ode::Solution& solution) const {
    if (!options_.saveat.ts.empty()) return solution.ys.leaf();
    const Value y = solution.y1.leaf();
    const Value success = equal(solution.result, constant(static_cast<int>(ode::Result::Success), DType::I32));
    return select(broadcast_to(success, y.shape()), y,
                  constant(std::numeric_limits<double>::infinity(), y.dtype(), y.shape()));
  }

  Layer field_;
  double t1_;
  ode::Solver solver_;
  ode::Options options_;
};

std::vector<std::string> names_of(const auto& defs) {
  std::vector<std::string> names;
  for (const auto& def : defs) names.push_back(def.name);
  return names;
}

}  // namespace

NeuralODE::NeuralODE(Layer field, double t1, std::int64_t saves, const ode::Solver& solver, const ode::Options& options)
    : Layer(NeuralOdeModule(std::move(field), t1, saves, solver, options)) {}

std::vector<LayerDef> layers_ode() {
  LayerDef def;
  def.name = "ode";
  def.summary =
      "solves dy/dt = the layers inside from t = 0, each row its input: (B, ...) to (B, ...) at t1, or (B, saves, ...)";
  def.parameters = {
      {"t1", 1.0, "where the solve ends"},
      {"saves", std::int64_t{0},
       "rows of output, evenly spaced up to t1; 0: the state at t1, without an axis of its own"},
      {"solver", std::string("tsit5"), "of the equation", false, names_of(ode::all_solvers())},
      {"controller", std::string("pid"), "of the step size; constant: steps of dt0", false, {"pid", "constant"}},
      {"rtol", 1e-3, "relative tolerance of a step's error"},
      {"atol", 1e-6, "absolute tolerance"},
      {"pcoeff", 0.0, "of the controller, 0.4 in a PI one"},
      {"icoeff", 1.0, "of the controller, 0.3 in a PI one"},
      {"dcoeff", 0.0, "of the controller"},
      {"dt0", 0.0, "first step, or every step; 0: chosen"},
      {"max_steps", std::int64_t{4096}, "attempted steps of a row at most; one that needs more is inf"},
      {"adjoint", std::string("discrete"), "how the gradient is found", false, names_of(ode::all_adjoints())}};
  def.wrap = [](const Config& config, Layer inner) -> Layer {
    ode::Options options;
    if (config.number("dt0") != 0) options.dt0 = config.number("dt0");
    options.max_steps = config.integer("max_steps");
    options.adjoint = ode::make_adjoint(config.text("adjoint"));
    ode::PIDOptions coefficients;
    coefficients.pcoeff = config.number("pcoeff");
    coefficients.icoeff = config.number("icoeff");
    coefficients.dcoeff = config.number("dcoeff");
    if (config.text("controller") == "constant")
      options.controller = ode::ConstantStep();
    else
      options.controller = ode::PID(config.number("rtol"), config.number("atol"), coefficients);
    return NeuralODE(std::move(inner), config.number("t1"), config.integer("saves"),
                     ode::make_solver(config.text("solver")), options);
  };
  return {def};
}

}  // namespace hotloop::nn
