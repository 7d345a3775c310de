#include "hotloop/ops.h"
#include "nn/registry.h"

namespace hotloop::nn {
namespace {

constexpr std::string_view suffix = "_reverse";

// One direction's part of what both have, under the layer's own names.
template <class T> Tree<T> part(const Tree<T>& both, bool reverse) {
  Tree<T> own;
  for (const auto& [name, child] : both.children())
    if (name.ends_with(suffix) == reverse) own.set(reverse ? name.substr(0, name.size() - suffix.size()) : name, child);
  return own;
}

// Both parts, the reverse one's top-level names ending in "_reverse".
template <class T> Tree<T> joined(Tree<T> forward, const Tree<T>& reverse) {
  for (const auto& [name, child] : reverse.children()) forward.set(name + std::string(suffix), child);
  return forward;
}

class BidirectionalModule : public BuiltInModule {
 public:
  BidirectionalModule(Layer layer, Merge merge, bool sequences)
      : layer_(std::move(layer)), merge_(merge), sequences_(sequences) {}

  Tree<Array> init(const Seed& seed, DType dtype, Init init) const override {
    const Tree<Array> forward = layer_.init(seed, dtype, init);
    for (const auto& [name, child] : forward.children())
      if (name.ends_with(suffix))
        throw UserError(
            "bidirectional",
            "parameters of the layer must not have names that end in \"_reverse\": so do the other direction's",
            "'" + name + "'", "a layer that runs one way, or another name; or Sequential(the layer) here");
    return joined(forward, layer_.init(fold_in(seed, "reverse"), dtype, init));
  }
  Tree<Array> init_buffers(DType dtype) const override {
    const Tree<Array> own = layer_.init_buffers(dtype);
    return joined(own, own);
  }
  Tree<Value> initial_state(std::int64_t batch, DType dtype) const override {
    Tree<Value> own = layer_.initial_state(batch, dtype);
    if (own.empty()) return {};
    return {{"forward", own}, {"reverse", own}};
  }

  Value apply(const Tree<Value>& params, Value x, Context& context) const override {
    const Value keys = context.key.defined() ? random_bits(context.key, {2, 2}) : Value{};
    Tree<Value> buffers[2];
    Value ys[2];
    for (const bool reverse : {false, true}) {
      Context inner = context;
      if (keys.defined()) inner.key = take(keys, 0, reverse);
      inner.reverse = context.reverse != reverse;
      const std::string direction = reverse ? "reverse" : "forward";
      if (context.state) inner.state = context.state->at(direction);
      if (context.watch)
        inner.watch = [&](const std::string& inside, const Value& output) {
          context.watch(direction + "." + inside, output);
        };
      inner.buffers = part(context.buffers, reverse);
      Value y = layer_.apply(part(params, reverse), x, inner);
      if (y.rank() < 3 || y.shape()[1] != x.shape()[1])
        throw UserError("bidirectional", "the layer must give a sequence (batch, time, features)", y.type().str(),
                        "pool, or sequences = false, after both directions");
      if (context.state) context.state->set(direction, *inner.state);
      buffers[reverse] = inner.buffers;
      // Where this direction ends: the last step it computed.
      if (!sequences_) y = inner.reverse ? take(y, 1, 0) : Last().apply({}, y, inner);
      ys[reverse] = y;
    }
    context.buffers = joined(buffers[0], buffers[1]);
    if (!sequences_) context.lengths = {};
    return merged(ys[0], ys[1]);
  }

 private:
  Value merged(Value forward, Value reverse) const {
    const Value both[] = {forward, reverse};
    switch (merge_) {
      case Merge::Concat: return concat(both, forward.rank() - 1);
      case Merge::Sum: return forward + reverse;
      case Merge::Mul: return forward * reverse;
      case Merge::Average: return 0.5 * (forward + reverse);
    }
    throw InternalError(__FILE__, __LINE__, "no such merge");
  }

  Layer layer_;
  Merge merge_;
  bool sequences_;
};

Merge merge_named(const std::string& name) {
  return name == "concat" ? Merge::Concat : name == "sum" ? Merge::Sum : name == "mul" ? Merge::Mul : Merge::Average;
}

}  // namespace

Bidirectional::Bidirectional(Layer layer, Merge merge, bool sequences)
    : Layer(BidirectionalModule(std::move(layer), merge, sequences)) {}

std::vector<LayerDef> layers_bidirectional() {
  LayerDef def;
  def.name = "bidirectional";
  def.summary =
      "the layers inside, forward and from the last step to the first: (batch, time, features) -> (batch, time, both)";
  def.parameters = {{"merge", "concat", "of both directions' outputs", false, {"concat", "sum", "mul", "average"}},
                    {"sequences", true, "all steps, or only where each direction ends"}};
  def.wrap = [](const Config& config, Layer inner) -> Layer {
    return Bidirectional(std::move(inner), merge_named(config.text("merge")), config.flag("sequences"));
  };
  return {def};
}

}  // namespace hotloop::nn
