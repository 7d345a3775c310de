// The loop that every method is: evaluations, one an iteration, until one of them ends it with a status.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/print_number.h"
#include "hotloop/error.h"
#include "hotloop/minimize.h"
#include "hotloop/ops.h"
#include "ops/composed/bounded_while.h"

namespace hotloop::minimizers {

inline constexpr Status running = static_cast<Status>(-1);
inline Value code(Status status) { return constant(static_cast<double>(status), DType::I32); }

inline void require_not_negative(const char* where, std::initializer_list<std::pair<const char*, double>> options) {
  for (const auto& [name, number] : options)
    if (!(number >= 0)) throw UserError(where, std::string(name) + " must not be negative", print_number(number));
}

template <class Options> std::int64_t most_evaluations(const Options& options) {
  return options.max_evaluations > 0 ? options.max_evaluations : 20 * (options.max_iterations + 1);
}

// `Progress` is what the loop carries: visit(f) calls f(Value&) for all of it, `status` is a part. evaluated(Progress) gives the next one. What
// it is in the end, and how many evaluations there were.
template <class Progress, class Evaluated>
std::pair<Progress, Value> evaluate_until_ended(const char* name, const Progress& start, std::int64_t most,
                                                const Evaluated& evaluated) {
  const auto pack = [](Progress p) {
    std::vector<Value> values;
    p.visit([&](Value& v) { values.push_back(v); });
    return values;
  };
  const auto unpack = [&](std::span<const Value> values) {
    Progress p = start;
    std::size_t next = 0;
    p.visit([&](Value& v) { v = values[next++]; });
    return p;
  };
  const auto going_on = [&](std::span<const Value> v) { return equal(unpack(v).status, code(running)); };
  const auto body = [&](std::span<const Value> v) { return pack(evaluated(unpack(v))); };
  const LoopResult loop = ir::bounded_while(name, going_on, body, pack(start), most);
  Progress end = unpack(loop.carry);
  end.status = select(equal(end.status, code(running)), code(Status::MaxEvaluations), end.status);
  return {end, loop.count};
}

}  // namespace hotloop::minimizers
