#include "backends/render/read_ahead.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <variant>

#include "backends/render/renderer.h"
#include "schedule/footprint.h"

namespace hotloop::render {

using namespace kernel;

namespace {

bool is_plain(const Stmt& stmt) {
  return std::holds_alternative<Map>(stmt.node) || std::holds_alternative<Dot>(stmt.node) ||
         std::holds_alternative<Pack>(stmt.node);
}

// Lowest and highest index, less what the variables around add.
std::pair<std::int64_t, std::int64_t> reach_of(const Touch& t) {
  std::int64_t low = t.base.constant, high = t.base.constant;
  for (const auto& [stride, extent] : t.steps)
    (stride < 0 ? low : high) += stride * std::max<std::int64_t>(extent - 1, 0);
  return {low, high};
}

}  // namespace

// Once for all that a loop reads: loops may be long.
const ReadAheadWriter::Touched& ReadAheadWriter::touched_in(LoopAround& around) {
  if (around.touched) return *around.touched;
  Touched& touched = around.touched.emplace();
  touched.plain = std::ranges::all_of(around.loop->body, is_plain);
  if (!touched.plain) return touched;
  for (const Stmt& stmt : around.loop->body)
    for (Touch& t : touches_of(stmt, around.loop->counter)) {
      if (t.writes) touched.written.insert(t.buffer);
      touched.of_buffer[t.buffer].emplace_back(&stmt, std::move(t));
    }
  return touched;
}

std::int64_t ReadAheadWriter::step_ahead(const Access& access) {
  if (loops_.empty() || !extents_stay_ || !access.indirect.empty() || !is_far(access)) return 0;
  const For& loop = *loops_.back().loop;
  const std::int64_t along = access.index.coefficient(loop.counter);
  // What ends a loop early may write as well, and where other loops or variables are set the statement may not be one of this loop's own.
  if (along == 0 || loop.stop) return 0;
  const Touched& touched = touched_in(loops_.back());
  if (!touched.plain) return 0;
  for (const int b : touched.written)
    if (b != access.buffer && lie_together(buffer(b), buffer(access.buffer))) return 0;
  std::vector<const Touch*> here;
  bool writes = false;
  for (const auto& [stmt, t] : touched.of_buffer.at(access.buffer)) {
    if (t.writes && stmt != statement_) return 0;
    if (stmt != statement_) continue;
    writes = writes || t.writes;
    here.push_back(&t);
  }
  if (writes)
    for (const Touch* a : here) {
      if (a->anywhere || a->along != along || a->base.terms != here.front()->base.terms) return 0;
      for (const Touch* b : here)
        if (reach_of(*a).second - reach_of(*b).first >= std::abs(along)) return 0;
    }
  return loop.reverse ? -along : along;
}

std::string ReadAheadWriter::carried_register(DType dtype, const std::string& first_read) {
  const std::string next = "next" + std::to_string(num_carried_++);
  LoopAround& around = loops_.back();
  const std::string condition = around.first + " >= 0" + (only_if_.empty() ? "" : " && (" + only_if_ + ")");
  around.before += type(dtype) + " " + next + " = 0;\n";
  around.before += "if (" + condition + ") {\n  const " + index_type() + " " + var(around.loop->counter) + " = " +
                   around.first + ";\n" + replaced(first_read, "$next", next) + "}\n";
  return next;
}

std::string ReadAheadWriter::next_read(const std::string& next, const std::string& here, std::int64_t step) const {
  return "if (" + loops_.back().has_next + ") " + next + " = (&" + here + ")[" + number(step) + "];";
}

}  // namespace hotloop::render
