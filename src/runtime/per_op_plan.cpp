#include "runtime/per_op_plan.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <utility>

#include "core/cancel.h"
#include "core/index.h"
#include "hotloop/error.h"
#include "ir/op_def.h"
#include "runtime/pool.h"
#include "schedule/storage.h"

namespace hotloop::runtime {
namespace {

using ir::is;
using ir::OpKind;

// Ops that other frameworks do not launch a kernel for either. A reversal they do.
bool is_view(const Node& node) { return is_strided_view(node) && !is(node, OpKind::Reverse); }

bool is_scalar_constant(const Node& node) { return is(node, OpKind::Constant) && node.types[0].shape.size() == 1; }

Array fresh(const ValueType& type) { return Array::wrap(type.dtype, type.shape, array_pool().take(type.bytes())); }

void copy_into(void* to, const Array& from) {
  if (from.bytes() > 0) std::memcpy(to, from.raw(), from.bytes());
}

}  // namespace

struct PerOpPlan::Step {
  const Node* node = nullptr;  // of a loop
  std::unique_ptr<Executable> kernel;
  std::vector<Value> operands, results;
  std::unique_ptr<PerOpPlan> body, until;
  std::vector<int> released;  // values that nothing reads afterwards
};

PerOpPlan::~PerOpPlan() = default;

PerOpPlan::PerOpPlan(std::shared_ptr<const Graph> graph, const CompileOptions& options)
    : graph_(std::move(graph)),
      options_(options),
      index_(*graph_),
      constants_(at(index_.size())),
      in_memory_(at(index_.size()), false) {
  for (const Value& v : graph_->inputs()) in_memory_[at(index_(v))] = true;
  for (const auto& node : graph_->nodes()) {
    if (is(*node, OpKind::Input)) continue;
    if (is_view(*node)) {
      ++num_views_;
    } else if (is(*node, OpKind::Constant)) {
      if (is_scalar_constant(*node)) continue;
      const int i = index_(node->result());
      constants_[at(i)] = node->attrs.get<Array>("value");
      in_memory_[at(i)] = true;
    } else if (is(*node, OpKind::Loop)) {
      add_loop(*node);
    } else {
      std::vector<Value> results;
      for (std::size_t i = 0; i < node->types.size(); ++i) results.push_back(node->result(static_cast<int>(i)));
      add_kernel(*node, std::move(results));
    }
  }
  for (const Value& v : graph_->outputs()) materialize(v);
  find_last_uses();
}

// A kernel that computes `results`, reading what lies in memory.
void PerOpPlan::add_kernel(const Node& node, std::vector<Value> results) {
  auto step = std::make_unique<Step>();
  auto kernel = std::make_shared<Graph>(node.op->name);
  std::map<int, Value> mapped;
  std::vector<Value> outputs;
  {
    TraceScope scope(*kernel);
    const std::function<Value(Value)> read = [&](Value v) -> Value {
      const int i = index_(v);
      if (const auto it = mapped.find(i); it != mapped.end()) return it->second;
      if (in_memory_[at(i)]) {
        step->operands.push_back(v);
        return mapped[i] = kernel->add_input(v.type());
      }
      std::vector<Value> operands;
      for (const Value& o : v.node->operands) operands.push_back(read(o));
      return mapped[i] = ir::copy_node(*v.node, std::move(operands))->result(v.index);
    };
    if (results.size() == 1) {
      outputs.push_back(read(results[0]));
    } else {
      std::vector<Value> operands;
      for (const Value& o : node.operands) operands.push_back(read(o));
      Node* copy = ir::copy_node(node, std::move(operands));
      for (const Value& r : results) outputs.push_back(copy->result(r.index));
    }
  }
  kernel->set_outputs(std::move(outputs));
  step->kernel = std::make_unique<Executable>(compile(std::move(kernel), options_));
  for (const Value& r : results) in_memory_[at(index_(r))] = true;
  step->results = std::move(results);
  steps_.push_back(std::move(step));
}

// Makes a view or a scalar constant lie in memory.
void PerOpPlan::materialize(Value v) {
  if (in_memory_[at(index_(v))]) return;
  if (is(*v.node, OpKind::Constant)) {
    constants_[at(index_(v))] = v.node->attrs.get<Array>("value");
    in_memory_[at(index_(v))] = true;
    return;
  }
  add_kernel(*v.node, {v});
}

void PerOpPlan::add_loop(const Node& node) {
  const ir::LoopView loop(node);
  auto step = std::make_unique<Step>();
  step->node = &node;
  step->body = std::make_unique<PerOpPlan>(node.regions[0], options_);
  if (loop.until() != nullptr) step->until = std::make_unique<PerOpPlan>(node.regions[1], options_);
  for (const Value& v : node.operands) {
    materialize(v);
    step->operands.push_back(v);
  }
  for (std::size_t i = 0; i < node.types.size(); ++i) {
    step->results.push_back(Value{const_cast<Node*>(&node), static_cast<int>(i)});
    in_memory_[at(index_(step->results.back()))] = true;
  }
  steps_.push_back(std::move(step));
}

void PerOpPlan::find_last_uses() {
  std::vector<std::size_t> last(at(index_.size()), 0);
  std::vector<bool> kept(at(index_.size()), false);
  for (const Value& v : graph_->outputs()) kept[at(index_(v))] = true;
  for (std::size_t s = 0; s < steps_.size(); ++s) {
    for (const Value& v : steps_[s]->operands) last[at(index_(v))] = s;
    for (const Value& v : steps_[s]->results) last[at(index_(v))] = s;
  }
  for (std::size_t s = 0; s < steps_.size(); ++s) {
    const auto release = [&](const Value& v) {
      const int i = index_(v);
      if (last[at(i)] == s && !kept[at(i)] && std::ranges::find(steps_[s]->released, i) == steps_[s]->released.end())
        steps_[s]->released.push_back(i);
    };
    std::ranges::for_each(steps_[s]->operands, release);
    std::ranges::for_each(steps_[s]->results, release);
  }
}

std::vector<Array> PerOpPlan::run(std::span<const Array> inputs) const {
  std::vector<Array> values = constants_;
  for (std::size_t i = 0; i < inputs.size(); ++i) values[at(index_(graph_->inputs()[i]))] = inputs[i];
  std::vector<Array> operands, results;
  for (const auto& step : steps_) {
    operands.clear();
    for (const Value& v : step->operands) operands.push_back(values[at(index_(v))]);
    if (step->node != nullptr) {
      results = step->until ? step->node->op->eval({*step->node, operands,
                                                    [&](const Graph& region, std::span<const Array> arguments) {
                                                      const bool is_body = &region == step->node->regions[0].get();
                                                      return (is_body ? step->body : step->until)->run(arguments);
                                                    }})
                            : scan(*step, operands);
    } else {
      results.resize(step->results.size());
      step->kernel->run(operands, results);
    }
    for (std::size_t i = 0; i < results.size(); ++i) values[at(index_(step->results[i]))] = std::move(results[i]);
    for (const int i : step->released) values[at(i)] = Array{};
  }
  std::vector<Array> outputs;
  for (const Value& v : graph_->outputs()) outputs.push_back(values[at(index_(v))]);
  return outputs;
}

// A loop without a predicate: rows of xs are read where they lie, carries handed on, ys copied to their place.
std::vector<Array> PerOpPlan::scan(const Step& step, std::span<const Array> operands) const {
  const ir::LoopView loop(*step.node);
  const std::size_t num_carry = at(loop.num_carry()), num_xs = at(loop.num_xs()), num_consts = at(loop.num_consts());
  const std::int64_t trip = loop.has_trip()
                                ? std::clamp<std::int64_t>(operands.back().data<std::int32_t>()[0], 0, loop.length())
                                : loop.length();
  std::vector<Array> results(operands.begin(), operands.begin() + static_cast<std::ptrdiff_t>(num_carry));
  for (std::size_t i = num_carry; i < step.node->types.size(); ++i) {
    results.push_back(fresh(step.node->types[i]));
    // Beyond the trip count ys are zero.
    if (trip < loop.length() && results[i].bytes() > 0) std::memset(results[i].raw(), 0, results[i].bytes());
  }
  results.back().data<std::int32_t>()[0] = static_cast<std::int32_t>(trip);

  std::vector<Array> arguments(num_carry + num_xs + num_consts);
  std::ranges::copy(operands.subspan(num_carry + num_xs, num_consts),
                    arguments.begin() + static_cast<std::ptrdiff_t>(num_carry + num_xs));
  for (std::int64_t k = 0; k < trip && !cancel_requested(); ++k) {
    const std::int64_t t = loop.reverse() ? trip - 1 - k : k;
    for (std::size_t i = 0; i < num_carry; ++i) arguments[i] = std::move(results[i]);
    for (std::size_t i = num_carry; i < num_carry + num_xs; ++i) {
      const Array& x = operands[i];
      const Shape shape = x.shape().without(0);
      const std::size_t bytes = x.bytes() / static_cast<std::size_t>(loop.length());
      char* row = static_cast<char*>(x.memory().get()) + static_cast<std::size_t>(t) * bytes;
      arguments[i] = Array::wrap(x.dtype(), shape, std::shared_ptr<void>(x.memory(), row));
    }
    std::vector<Array> out = step.body->run(arguments);
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (i < num_carry)
        results[i] = std::move(out[i]);
      else
        copy_into(static_cast<char*>(results[i].raw()) + static_cast<std::size_t>(t) * out[i].bytes(), out[i]);
    }
  }
  return results;
}

PerOpPlan::Counts PerOpPlan::counts() const {
  Counts total;
  total.views = num_views_;
  for (const auto& step : steps_) {
    if (step->node == nullptr) {
      ++total.kernels;
      ++total.launches;
      continue;
    }
    const std::int64_t length = ir::LoopView(*step->node).length();
    for (const PerOpPlan* plan : {step->body.get(), step->until.get()}) {
      if (plan == nullptr) continue;
      const Counts inner = plan->counts();
      total.kernels += inner.kernels;
      total.views += inner.views;
      total.launches += length * inner.launches;
    }
  }
  return total;
}

}  // namespace hotloop::runtime
