#include "core/print_number.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "optim/learning_rate.h"

namespace hotloop::optim {
namespace {

template <class T> Tree<T> child_of(const Tree<T>& state, std::size_t i) {
  const std::string name = std::to_string(i);
  return state.has(name) ? state.at(name) : Tree<T>();
}

}  // namespace

Tree<Array> Schedule::init() const {
  Tree<Array> state;
  for (std::size_t i = 0; i < factors_.size(); ++i) {
    Tree<Array> own = factors_[i]->init();
    if (!own.empty()) state.set(std::to_string(i), std::move(own));
  }
  return state;
}

Value Schedule::at(Value step, const Tree<Value>& state, DType dtype) const {
  if (factors_.empty()) return constant(learning_rate_, dtype);
  Value rate = constant(learning_rate_, DType::F64);
  for (std::size_t i = 0; i < factors_.size(); ++i) {
    const Value factor = factors_[i]->factor(step, child_of(state, i));
    if (factor.type() != ValueType{DType::F64, {}})
      throw UserError("schedule", "a schedule's factor must be an f64 scalar", factor.type().str(),
                      "cast() it to f64, or take one element");
    rate = rate * factor;
  }
  return cast(rate, dtype);
}

Tree<Value> Schedule::observe(const Tree<Value>& state, Value value) const {
  Tree<Value> next = state;
  for (std::size_t i = 0; i < factors_.size(); ++i)
    if (state.has(std::to_string(i))) next.set(std::to_string(i), factors_[i]->observe(child_of(state, i), value));
  return next;
}

LearningRate::LearningRate(const std::string& where, const Schedule& schedule, bool counts)
    : schedule_(schedule), counts_(counts || !schedule.is_constant()) {
  if (!(schedule.learning_rate() >= 0))
    throw UserError(where, "the learning rate must not be negative", print_number(schedule.learning_rate()),
                    "1e-3 to begin with");
}

Tree<Array> LearningRate::init() const {
  Tree<Array> state;
  if (counts_) state.set("step", Array::scalar<std::int32_t>(0));
  Tree<Array> own = schedule_.init();
  if (!own.empty()) state.set("schedule", std::move(own));
  return state;
}

LearningRate::Now::Now(const Schedule& schedule, const Tree<Value>& state) : schedule_(schedule) {
  if (state.has("step")) {
    before_ = state["step"];
    step_ = before_ + constant(1, DType::I32);
    next_.set("step", step_);
  }
  if (state.has("schedule")) {
    schedule_state_ = state.at("schedule");
    next_.set("schedule", schedule_state_);
  }
}

Value LearningRate::Now::operator()(DType dtype) const { return schedule_.at(before_, schedule_state_, dtype); }

Tree<Value> LearningRate::observe(const Tree<Value>& state, Value value) const {
  Tree<Value> next = state;
  if (state.has("schedule")) next.set("schedule", schedule_.observe(state.at("schedule"), value));
  return next;
}

}  // namespace hotloop::optim
