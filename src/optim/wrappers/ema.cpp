#include "core/print_number.h"
#include "hotloop/ops.h"
#include "optim/wrapper.h"

namespace hotloop::optim {
namespace {

template <class T> Tree<T> inner_of(const Tree<T>& state) {
  return state.has("inner") ? state.at("inner") : Tree<T>();  // an inner optimiser without a state has no child
}

template <class T> Tree<T> with_inner(Tree<T> state, Tree<T> inner) {
  if (!inner.empty()) state.set("inner", std::move(inner));
  return state;
}

class EmaRule : public Wrapper {
 public:
  EmaRule(Optimizer inner, double decay) : Wrapper(std::move(inner)), decay_(decay) {
    if (!(decay >= 0 && decay < 1)) throw UserError("ema", "decay must be in [0, 1)", print_number(decay));
  }

  Tree<Array> init(const Tree<Array>& params) const override {
    return with_inner<Array>({{"average", params.map([](const Array& p) { return p.clone(); })}}, inner().init(params));
  }
  Tree<Value> traced_init(const Tree<Value>& params) const override {
    return with_inner<Value>({{"average", params}}, inner().traced_init(params));
  }
  std::pair<Tree<Value>, Tree<Value>> update(const Tree<Value>& grads, const Tree<Value>& state,
                                             const Tree<Value>& params) const override {
    auto [updated, inner_state] = inner().update(grads, inner_of(state), params);
    const Tree<Value> average =
        map_trees([&](Value old, Value p) { return decay_ * old + (1 - decay_) * p; }, state.at("average"), updated);
    return {updated, with_inner<Value>({{"average", average}}, std::move(inner_state))};
  }
  Tree<Value> observe(const Tree<Value>& state, Value value) const override {
    return with_inner<Value>({{"average", state.at("average")}}, inner().observe(inner_of(state), value));
  }
  Tree<Array> evaluated(const Tree<Array>&, const Tree<Array>& state) const override { return state.at("average"); }
  Tree<Value> traced_evaluated(const Tree<Value>&, const Tree<Value>& state) const override {
    return state.at("average");
  }

 private:
  double decay_;
};

}  // namespace

EMA::EMA(Optimizer inner, double decay) : Optimizer(EmaRule(std::move(inner), decay)) {}

std::vector<WrapperDef> wrappers_ema() {
  return {{"ema",
           "keeps a running mean of the parameters, which is validated and kept",
           {{"decay", 0.999, "of the mean, in [0, 1)"}},
           [](const Config& config, Optimizer inner) -> Optimizer {
             return EMA(std::move(inner), config.number("decay"));
           }}};
}

}  // namespace hotloop::optim
