// Carries that are computed where they lie: a table of which a loop replaces parts, or adds to parts, is not copied in each iteration.
#include <algorithm>
#include <span>

#include "ir/op_def.h"
#include "schedule/block_lowering.h"
#include "schedule/replaced_parts.h"

namespace hotloop {

using ir::OpKind;

namespace {

bool is_update(const Node& node) { return ir::is(node, OpKind::DynamicUpdate) || ir::is(node, OpKind::ScatterAdd); }

// What a dynamic_update stores.
Value written_by(const Node& update) {
  const auto kept = kept_part(update);
  return kept ? kept->otherwise : update.operands[1];
}

}  // namespace

// The values from a carry's next one down to the first that replaces parts of the carry itself, each of which replaces parts of the one below;
// empty if there is another value on the way, or one that more is to be known of than what the block computes.
std::vector<Value> BlockLowering::updates_of(const BlockTarget& target) {
  std::vector<Value> chain;
  if (!target.overwrites) return chain;
  Value v = target.value;
  while (v != *target.overwrites) {
    if (!in_block(v) || !is_update(*v.node) || context_.find(v)) return {};
    const bool is_asked_for = std::ranges::any_of(targets_, [&](const BlockTarget& t) { return t.value == v; }) ||
                              std::ranges::find(required_, v) != required_.end();
    if (!chain.empty() && is_asked_for) return {};
    chain.push_back(v);
    v = context_.resolve(v.node->operands[0]);
  }
  return chain;
}

// Whether v reads `table`, but where `update` writes into it at the same point.
bool BlockLowering::reads_elsewhere(Value v, const Node& update, Value table, bool same_point, MetAtPoints& met) {
  v = context_.resolve(v);
  if (!met.is_first(v, same_point)) return false;
  if (v == table) return true;
  if (planned_.contains(key_of(v)) || (context_.find(v) && !is_strided_view(*v.node))) return false;
  if (ir::is(*v.node, OpKind::Extent)) return false;
  const bool is_where_it_writes =
      ir::is(*v.node, OpKind::DynamicSlice) && context_.resolve(v.node->operands[0]) == table &&
      std::ranges::equal(std::span(v.node->operands).subspan(1), std::span(update.operands).subspan(2));
  for (std::size_t i = 0; i < v.node->operands.size(); ++i) {
    if (is_where_it_writes && same_point && i == 0) continue;
    const Value o = v.node->operands[i];
    if (reads_elsewhere(o, update, table, same_point && keeps_index(context_, *v.node, context_.resolve(o)), met))
      return true;
  }
  return false;
}

bool BlockLowering::reads_one_of(Value v, const std::set<ValueKey>& values) {
  std::map<ValueKey, bool> reads;
  collect_reads(v, true, reads);
  return std::ranges::any_of(reads, [&](const auto& read) { return values.contains(read.first); });
}

// Puts into memory what v reads of values that are written over, in the largest parts that read nothing of `table`.
void BlockLowering::keep_reads(Value v, const std::set<ValueKey>& written_over, const std::set<ValueKey>& table,
                               Met& met) {
  v = context_.resolve(v);
  if (!met.is_first(v) || stored(v) || !reads_one_of(v, written_over)) return;
  if (!reads_one_of(v, table)) return need_memory(v);
  for (const Value& o : v.node->operands) keep_reads(o, written_over, table, met);
}

// What goes into a part of a table and is read from another part of it, or from a table that another value is written over, is computed before
// anything is written.
void BlockLowering::compute_updates_first() {
  std::set<ValueKey> carries;
  for (const BlockTarget& target : targets_)
    if (!updates_of(target).empty()) carries.insert(key_of(*target.overwrites));
  for (const BlockTarget& target : targets_) {
    const std::vector<Value> chain = updates_of(target);
    std::set<ValueKey> written_over = carries;
    for (std::size_t i = chain.size(); i-- > 0;) {
      const Node& update = *chain[i].node;
      const Value table = context_.resolve(update.operands[0]);
      written_over.insert(key_of(table));
      std::set<ValueKey> others = written_over;
      others.erase(key_of(table));
      std::span<const Value> in_memory = std::span(update.operands).subspan(1);  // if it reads what is written over
      if (ir::is(update, OpKind::DynamicUpdate)) {
        const Value written = written_by(update);
        Met kept;
        keep_reads(written, others, {key_of(table)}, kept);
        MetAtPoints met;
        if (reads_elsewhere(written, update, table, true, met)) need_memory(written);
        in_memory = in_memory.subspan(1);
      }
      for (const Value& v : in_memory)
        if (reads_one_of(v, written_over)) need_memory(v);
    }
  }
}

// A carry whose next value is computed point by point from the one before may stay where it is if the few numbers that all points look up in
// it, such as the row that is taken from all others, are read before.
void BlockLowering::keep_lookups() {
  for (const BlockTarget& target : targets_) {
    if (!target.overwrites || !planned_.contains(key_of(target.value)) || dots_.contains(key_of(target.value)))
      continue;
    const Value old = *target.overwrites;
    std::vector<Value> lookups;
    // Whether v reads the old carry at its own point, or by lookups alone.
    MetAtPoints met;
    const auto by_lookups = [&](auto&& self, Value v, bool same_point) -> bool {
      v = context_.resolve(v);
      if (!met.is_first(v, same_point)) return true;
      if (v == old) return same_point;
      if (stored(v) && !is_strided_view(*v.node)) return true;
      const Node& node = *v.node;
      const bool looks_up = ir::is(node, OpKind::DynamicSlice) || ir::is(node, OpKind::Gather);
      if (looks_up && context_.resolve(node.operands[0]) == old && !keeps_index(context_, node, old)) {
        lookups.push_back(v);
        return 2 * v.shape().size() <= old.shape().size();
      }
      return std::ranges::all_of(operands_read(node), [&](Value o) {
        return self(self, o, same_point && keeps_index(context_, node, context_.resolve(o)));
      });
    };
    const Node& next = *target.value.node;
    if (!ir::is(next, OpKind::Elementwise)) continue;
    if (std::ranges::all_of(next.operands, [&](Value o) { return by_lookups(by_lookups, o, true); }))
      for (Value v : lookups) need_memory(v);
  }
}

// Which values are computed where a carry lies, one after the other, and what follows from them: both come last, when all else has read
// the carry.
void BlockLowering::find_updates() {
  for (std::size_t t = 0; t < targets_.size(); ++t) {
    const std::vector<Value> chain = updates_of(targets_[t]);
    const auto primary = primary_target_.find(key_of(targets_[t].value));
    if (chain.empty() || primary == primary_target_.end() || primary->second != t || uses_[key_of(chain[0])] != 1)
      continue;
    if (!std::ranges::all_of(chain, [&](Value v) {
          return planned_.contains(key_of(v)) && updates_in_place(v, context_.resolve(v.node->operands[0]));
        }))
      continue;
    for (Value v : chain) {
      primary_target_[key_of(v)] = t;
      table_of_[key_of(v)] = context_.resolve(v.node->operands[0]);
      comes_last_.insert(key_of(v));
    }
  }
  if (comes_last_.empty()) return;
  for (Value v : planned_order_) {  // each after what it reads
    const std::map<ValueKey, bool> reads = reads_to_compute(v);
    if (std::ranges::any_of(reads, [&](const auto& read) { return comes_last_.contains(read.first); }))
      comes_last_.insert(key_of(v));
  }
}

// Whether v replaces or adds to parts of `old`, or is the carry of a loop that starts from it, and nothing else that its statement reads
// is `old`: then both may be one memory.
bool BlockLowering::updates_in_place(Value v, Value old) {
  const Node& node = *v.node;
  if (ir::is(node, OpKind::ScatterAdd)) return context_.resolve(node.operands[0]) == old;
  const std::optional<std::size_t> from = replaced_operand(v);
  if (!from || context_.resolve(node.operands[*from]) != old) return false;
  std::map<ValueKey, bool> reads;
  std::vector<Value> others = operands_read(node);
  others.erase(others.begin() + static_cast<std::ptrdiff_t>(*from));
  if (ir::is(node, OpKind::DynamicUpdate)) {
    MetAtPoints met;
    if (reads_elsewhere(written_by(node), node, old, true, met)) return false;
    others.erase(others.begin());
  }
  for (const Value& o : others) collect_reads(o, false, reads);
  return !reads.contains(key_of(old));
}

// Whether v is a sum of dots that starts from `start`, which is read nowhere else in it.
bool BlockLowering::starts_from(Value v, Value start) {
  const auto it = dots_.find(key_of(v));
  if (it == dots_.end() || !it->second.init || context_.resolve(*it->second.init) != start) return false;
  std::map<ValueKey, bool> reads;
  for (const Node* term : it->second.terms)
    for (Value o : term->operands) collect_reads(o, false, reads);
  return !reads.contains(key_of(start));
}

// Whether v may be computed where `old` lies: nothing reads that afterwards.
bool BlockLowering::may_overwrite(Value v, Value old) {
  const std::size_t writer = producer_.at(key_of(v));
  const bool updates = updates_in_place(v, old);
  if (!updates && slots_[writer].kind != Slot::Kind::Map && slots_[writer].kind != Slot::Kind::Dot) return false;
  const bool adds_to_old = starts_from(v, old);
  for (std::size_t s = 0; s < slots_.size(); ++s) {
    const auto it = slots_[s].reads.find(key_of(old));
    if (it == slots_[s].reads.end() || s < writer) continue;
    const bool here = slots_[s].kind == Slot::Kind::Dot ? adds_to_old : slots_[s].kind == Slot::Kind::Map && it->second;
    if (s != writer || !(here || updates)) return false;
  }
  return std::ranges::none_of(late_copies_, [&](std::size_t other) { return targets_[other].value == old; });
}

// A value may be computed straight into the place of a carry if nothing reads the old carry afterwards, and so may the values on its way.
void BlockLowering::settle_overwrites() {
  for (std::size_t t = 0; t < targets_.size(); ++t) {
    if (!targets_[t].overwrites) continue;
    const auto primary = primary_target_.find(key_of(targets_[t].value));
    if (primary == primary_target_.end() || primary->second != t) continue;
    std::vector<std::pair<Value, Value>> steps;  // what is written, over what
    for (Value v : updates_of(targets_[t]))
      if (table_of_.contains(key_of(v))) steps.emplace_back(v, table_of_.at(key_of(v)));
    if (steps.empty()) steps.emplace_back(targets_[t].value, *targets_[t].overwrites);
    if (std::ranges::all_of(steps, [&](const auto& step) { return may_overwrite(step.first, step.second); })) continue;
    for (const auto& step : steps) primary_target_.erase(key_of(step.first));
    late_copies_.push_back(t);
  }
}

}  // namespace hotloop
