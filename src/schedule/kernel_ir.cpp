#include "schedule/kernel_ir.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "core/nearest.h"
#include "hotloop/error.h"
#include "schedule/host.h"

namespace hotloop::kernel {
namespace {

void add_term(std::vector<Term>& terms, const Term& term) {
  if (term.coefficient == 0) return;
  const auto at =
      std::lower_bound(terms.begin(), terms.end(), term, [](const Term& a, const Term& b) { return a.var < b.var; });
  if (at == terms.end() || at->var != term.var) {
    terms.insert(at, term);
  } else if (at->coefficient += term.coefficient; at->coefficient == 0) {
    terms.erase(at);
  }
}

std::vector<Target> all_targets() {
  // Rows x vectors of accumulators that leave registers for a row of B and a broadcast of A: 24 of 32 zmm, 12 of 16
  // ymm (a logical vector is two), 24 of 32 of NEON and 8 of 16 xmm (a logical vector is four).
  return {
      Target{.name = "amx", .dot_rows = 6, .dot_vectors = 4, .has_fma = true, .multiplies_blocks = true},
      Target{.name = "avx512", .dot_rows = 6, .dot_vectors = 4, .has_fma = true},
      Target{
          .name = "avx2", .dot_rows = 6, .dot_vectors = 1, .vector_registers = 2, .has_fma = true, .l1_rate_there = 64},
      Target{
          .name = "neon", .dot_rows = 6, .dot_vectors = 1, .vector_registers = 4, .has_fma = true, .l1_rate_there = 32},
      Target{.name = "portable",
             .dot_rows = 2,
             .dot_vectors = 1,
             .vector_registers = 4,
             .has_fma = false,
             .l1_rate_there = 32}};
}

}  // namespace

bool has_index(const Instr& instr) {
  return instr.kind == Instr::Kind::Load || instr.kind == Instr::Kind::Store || instr.kind == Instr::Kind::Index;
}

Instr op_instr(ScalarOp op, DType dtype, int a, int b, int c) {
  return {.kind = Instr::Kind::Op, .op = op, .dtype = dtype, .args = {a, b, c}, .bits = 0, .access = {}};
}

Instr const_instr(DType dtype, std::uint64_t bits) {
  return {.kind = Instr::Kind::Const, .dtype = dtype, .bits = bits, .access = {}};
}

Instr index_instr(DType dtype, Affine index) {
  return {.kind = Instr::Kind::Index, .dtype = dtype, .access = {-1, std::move(index), {}}};
}

Instr load_instr(DType dtype, Access access, int predicate) {
  return {.kind = Instr::Kind::Load, .dtype = dtype, .args = {predicate, -1, -1}, .access = std::move(access)};
}

Instr store_instr(DType dtype, Access access, int value, int predicate) {
  return {.kind = Instr::Kind::Store, .dtype = dtype, .args = {value, predicate, -1}, .access = std::move(access)};
}

Instr reduced_instr(ScalarOp op, DType dtype, int value, int factor) {
  return {.kind = Instr::Kind::Reduced, .op = op, .dtype = dtype, .args = {value, factor, -1}, .access = {}};
}
ScalarOp combiner(const Instr& reduced) { return reduced.op == ScalarOp::Fma ? ScalarOp::Add : reduced.op; }

Var Program::new_var(std::string name) {
  vars.push_back(std::move(name));
  return static_cast<Var>(vars.size()) - 1;
}

int Program::add_buffer(Buffer buffer) {
  buffers.push_back(std::move(buffer));
  return static_cast<int>(buffers.size()) - 1;
}

Affine Affine::of(Var var, std::int64_t coefficient) {
  Affine a;
  add_term(a.terms, {var, coefficient});
  return a;
}

std::int64_t Affine::coefficient(Var var) const {
  for (const Term& term : terms) {
    if (term.var == var) return term.coefficient;
  }
  return 0;
}

Affine Affine::without(Var var) const {
  Affine a = *this;
  std::erase_if(a.terms, [var](const Term& term) { return term.var == var; });
  return a;
}

Affine Affine::substituted(Var var, const Affine& by) const { return without(var) + by * coefficient(var); }

Affine operator+(const Affine& a, const Affine& b) {
  Affine sum = a;
  sum.constant += b.constant;
  for (const Term& term : b.terms) add_term(sum.terms, term);
  return sum;
}

Affine operator*(const Affine& a, std::int64_t factor) {
  Affine product(a.constant * factor);
  for (const Term& term : a.terms) add_term(product.terms, {term.var, term.coefficient * factor});
  return product;
}

std::int64_t Sections::num_rounds() const {
  std::int64_t longest = 0;
  for (const Section& section : sections) longest = std::max(longest, section.delay);
  return num_chunks() + longest;
}

std::int64_t runner_of_section(std::int64_t section, std::int64_t num_workers) {
  const std::int64_t place = section % (2 * num_workers);
  return place < num_workers ? place : 2 * num_workers - 1 - place;
}

int Map::lanes() const { return lanes_of_map(instrs); }

int lanes_of_map(const std::vector<Instr>& instrs) {
  std::size_t widest = 4;
  for (const Instr& in : instrs)
    if (in.kind != Instr::Kind::Op && in.kind != Instr::Kind::Const) widest = std::max(widest, size_of(in.dtype));
  return vector_bytes / static_cast<int>(widest);
}

void append(Block& block, Block part) {
  block.insert(block.end(), std::make_move_iterator(part.begin()), std::make_move_iterator(part.end()));
}

int contiguous_dim(const Map& map, const Access& access) {
  const int last = static_cast<int>(map.dims.size()) - 1;
  for (int d = last; d >= 0; --d)
    if (access.index.coefficient(map.dims[static_cast<std::size_t>(d)].var) == 1) return d;
  return last;
}

std::int64_t DotSegment::depth() const {
  std::int64_t steps = 1;
  for (const KDim& dim : k) steps *= dim.extent.bound;
  return steps;
}

std::int64_t Dot::panel() const {
  std::int64_t columns = 0;
  for (const DotSegment& s : segments) columns = std::max(columns, s.panel);
  return columns;
}

std::vector<std::string> target_names() {
  std::vector<std::string> names;
  for (const Target& target : all_targets()) names.push_back(target.name);
  return names;
}

Target target_named(const std::string& name) {
  for (const Target& target : all_targets())
    if (target.name == name) return target;
  throw UserError("target", "must be amx, avx512, avx2, neon, portable or host", "\"" + name + "\"",
                  nearest_hint(name, target_names()));
}

Target cuda_target() {
  // With the room that products take (BlockText), each block has so much shared memory on every device since 2018, and it leaves most of a large one to the cache that weights are read through.
  // As many blocks as the larger devices have multiprocessors; sums over the batch have a part for each.
  return Target{.name = "cuda", .has_fma = true, .near_bytes = 44 << 10, .blocks_worth_having = 128};
}

Target with_caches_of_host(Target target) {
  if (const std::int64_t bytes = host_l1_bytes(); bytes > 0) target.l1_bytes_there = bytes;
  if (const std::int64_t bytes = host_l2_bytes(); bytes > 0) target.l2_bytes_there = bytes;
  target.l3_is_near_there = host_has_near_l3();
  if (host_halves_vectors()) target.l1_rate_there = std::min(target.l1_rate_there, 64.0);
  return target;
}

bool has_wide_vectors(const Target& target) { return target.name == "avx512" || target.name == "amx"; }

Target host_target(bool rounds_factors) {
  if (const char* name = std::getenv("HOTLOOP_TARGET"); name != nullptr && *name != '\0') {
    Target target = target_named(name);
    if (!host_runs(target.name)) {
      throw UserError("HOTLOOP_TARGET", "must name a target that this machine runs", "\"" + target.name + "\"",
                      "unset HOTLOOP_TARGET");
    }
    return target.multiplies_blocks && !rounds_factors ? target_named("avx512") : target;
  }
  for (const Target& target : all_targets()) {
    if (target.multiplies_blocks && !rounds_factors) continue;  // the same but for those
    if (host_runs(target.name)) return target;
  }
  throw InternalError(__FILE__, __LINE__, "every machine runs portable");
}

}  // namespace hotloop::kernel
