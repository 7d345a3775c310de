#include <algorithm>
#include <initializer_list>
#include <limits>

#include "hotloop/ops.h"
#include "nn/registry.h"
#include "ops/composed/log_softmax.h"

namespace hotloop::losses {
namespace {

// The logarithm of 0: no sum of steps reaches it, and its differences are numbers.
constexpr double log_zero = -1e30;

Value all(Value like_this, const Shape& shape, double value) { return broadcast_to(like(like_this, value), shape); }

// log(exp(a) + exp(b) + ...).
Value log_sum(std::initializer_list<Value> parts) {
  Value most = *parts.begin(), total;
  for (const Value part : parts) most = maximum(most, part);
  most = stop_gradient(most);
  for (const Value part : parts) {
    const Value weight = exp(part - most);
    total = total.defined() ? total + weight : weight;
  }
  return most + log(total);
}

// x (B, S), each element in the place `by` behind its own; `first` in front.
Value moved_back(Value x, std::int64_t by, double first) {
  const std::int64_t kept = std::max<std::int64_t>(0, x.shape()[1] - by);
  return pad(narrow(x, 1, 0, kept), like(x, first), {0, x.shape()[1] - kept}, {0, 0});
}

// What a way through the steps is at: blank, label 0, blank, label 1, ..., blank.
struct States {
  Value symbols;   // i32 (B, 2 L + 1)
  Value last;      // i32 (B): the blank behind a row's labels
  Value may_skip;  // bool (B, 2 L + 1): whether a state may follow the one two places before, a label that is another
};

States states_of(Value target, std::int64_t blank) {
  const std::int64_t batch = target.shape()[0], length = target.shape()[1];
  const auto blank_number = static_cast<double>(blank);
  const Value given = cast(target, DType::I32), blanks = all(given, given.shape(), blank_number);
  const Value is_label = bit_and(greater_equal(given, 0.0), not_equal(given, blank_number));
  const Value pairs = stack(std::vector{blanks, select(is_label, given, blanks)}, 2);
  const Value symbols = pad(reshape(pairs, {batch, 2 * length}), like(given, blank_number), {0, 0}, {0, 1});
  return {symbols, 2 * reduce_sum(cast(is_label, DType::I32), {1}),
          bit_and(not_equal(symbols, blank_number), not_equal(symbols, moved_back(symbols, 2, blank_number)))};
}

// -log of the probability of all ways through the states, (B): the forward variables of Graves et al., eq. 5 to 8.
Value negative_log_likelihood(Value logits, Value target, Value lengths, std::int64_t blank) {
  const std::int64_t batch = logits.shape()[0], steps = logits.shape()[1];
  const States states = states_of(target, blank);
  const Shape shape = states.symbols.shape();
  // A class that is impossible, of logit -inf, has log_zero: differences of infinities would be none.
  const Value given = log_softmax(logits, 2);
  const Value log_p = select(less(given, log_zero), all(given, given.shape(), log_zero), given);
  const Value place = iota(DType::I32, shape, 1), nowhere = all(log_p, shape, log_zero);
  const Value begin = select(equal(place, 0.0), all(log_p, shape, 0), nowhere);
  std::vector<Value> xs = {transpose(log_p, {1, 0, 2})};
  if (lengths.defined()) xs.push_back(iota(DType::I32, {steps}, 0));
  const auto step = [&](std::span<const Value> carry, std::span<const Value> x) {
    const Value before = carry[0];
    const Value ways = log_sum(
        {before, moved_back(before, 1, log_zero), select(states.may_skip, moved_back(before, 2, log_zero), nowhere)});
    const Value now = ways + gather(x[0], states.symbols, 1, 1);
    if (!lengths.defined()) return std::pair(std::vector{now}, std::vector<Value>{});
    const Value goes_on = broadcast(less(broadcast_to(x[1], {batch}), lengths), shape, {0});
    return std::pair(std::vector{select(goes_on, now, before)}, std::vector<Value>{});
  };
  const Value ends = scan(step, std::vector{begin}, xs).first[0];
  // At the blank behind the last label, or at that label; without labels there are blanks alone.
  const auto end_at = [&](Value where) { return reshape(gather(ends, reshape(where, {batch, 1}), 1, 1), {batch}); };
  const Value at_label =
      select(greater(states.last, 0.0), end_at(maximum(states.last - 1.0, 0.0)), all(log_p, {batch}, log_zero));
  return -log_sum({end_at(states.last), at_label});
}

void check(const ValueType& prediction, const ValueType& target, std::int64_t blank) {
  if (prediction.shape.rank() != 3 || !is_float(prediction.dtype) || target.shape.rank() != 2 ||
      target.shape[0] != prediction.shape[0] || prediction.shape[2] <= blank)
    throw UserError("ctc",
                    "logits must be (batch, time, classes), the blank among the classes, and labels (batch, "
                    "most labels of a row)",
                    prediction.str() + " and " + target.str(),
                    "labels that are negative behind the last one of a shorter row");
}

Value sequences(Value prediction, Value target, Value lengths, std::int64_t blank, bool zero_infinity) {
  check(prediction.type(), target.type(), blank);
  const Value loss = negative_log_likelihood(prediction, target, lengths, blank);
  const double impossible = zero_infinity ? 0 : std::numeric_limits<double>::infinity();
  return select(less(loss, -0.5 * log_zero), loss, all(loss, loss.shape(), impossible));
}

}  // namespace

CTC::CTC(std::int64_t blank, bool zero_infinity)
    : Loss(Pointwise{.sequences =
                         [=](Value prediction, Value target, Value lengths) {
                           return sequences(prediction, target, lengths, blank, zero_infinity);
                         }},
           "ctc") {
  if (blank < 0) throw UserError("ctc", "blank must be the index of a class", std::to_string(blank), "0");
}

std::vector<LossDef> losses_ctc() {
  return {{"ctc",
           "connectionist temporal classification: labels in order, at steps that nobody says (Graves et al. 2006)",
           {{"blank", std::int64_t{0}, "the class that is no label"},
            {"zero_infinity", false, "rows whose labels do not fit into their steps count 0, not infinity"}},
           [](const Config& config) -> Loss { return CTC(config.integer("blank"), config.flag("zero_infinity")); }}};
}

}  // namespace hotloop::losses
