#include "schedule/lower_math.h"

#include <algorithm>

#include "schedule/accesses.h"
#include "schedule/math/expand.h"
#include "schedule/registers.h"

namespace hotloop::kernel {
namespace {

using Expansion = int (*)(math::Expander&, int);

Expansion expansion_of(ScalarOp op) {
  switch (op) {
    case ScalarOp::Exp: return math::exp;
    case ScalarOp::Expm1: return math::expm1;
    case ScalarOp::Log: return math::log;
    case ScalarOp::Log1p: return math::log1p;
    case ScalarOp::Tanh: return math::tanh;
    case ScalarOp::Sigmoid: return math::sigmoid;
    case ScalarOp::Erf: return math::erf;
    case ScalarOp::ErfInv: return math::erfinv;
    case ScalarOp::Erfc: return math::erfc;
    case ScalarOp::Ndtr: return math::ndtr;
    case ScalarOp::LogNdtr: return math::log_ndtr;
    case ScalarOp::Sin: return math::sin;
    case ScalarOp::Cos: return math::cos;
    default: return nullptr;
  }
}

using BinaryExpansion = int (*)(math::Expander&, int, int);

BinaryExpansion binary_expansion_of(ScalarOp op) {
  return op == ScalarOp::Pow ? math::pow : op == ScalarOp::Rem ? math::rem : nullptr;
}

bool is_expanded(const Instr& in) {
  return in.kind == Instr::Kind::Op && is_float(in.dtype) &&
         (expansion_of(in.op) != nullptr || binary_expansion_of(in.op) != nullptr);
}

void lower_map(Map& map, const Target& target) {
  if (std::none_of(map.instrs.begin(), map.instrs.end(), is_expanded)) return;
  std::vector<Instr> lowered;
  math::Expander expander(lowered, target);
  std::vector<int> moved;  // new register of each old one
  int body_end = 0;
  for (int i = 0; i < static_cast<int>(map.instrs.size()); ++i) {
    if (i == map.body_end) {
      body_end = static_cast<int>(lowered.size());
      expander.forget_constants();
    }
    Instr in = map.instrs[static_cast<std::size_t>(i)];
    renumber(in, moved);
    if (is_expanded(in)) {
      expander.begin(in.dtype);
      const BinaryExpansion binary = binary_expansion_of(in.op);
      moved.push_back(binary != nullptr ? binary(expander, in.args[0], in.args[1])
                                        : expansion_of(in.op)(expander, in.args[0]));
    } else {
      moved.push_back(static_cast<int>(lowered.size()));
      lowered.push_back(std::move(in));
    }
  }
  map.body_end = map.body_end == static_cast<int>(map.instrs.size()) ? static_cast<int>(lowered.size()) : body_end;
  map.instrs = std::move(lowered);
}

}  // namespace

void lower_math(Program& program) {
  for_each_statement(program.body, [&](auto& statement) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(statement)>, Map>) lower_map(statement, program.target);
  });
}

}  // namespace hotloop::kernel
