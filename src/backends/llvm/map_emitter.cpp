// The code of a nest: loops over its dims, in vectors where one fills them. What is done at each point: point_code.h.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "backends/llvm/map_nest.h"
#include "backends/llvm/nest_dims.h"
#include "backends/llvm/point_code.h"
#include "core/index.h"

namespace hotloop::codegen {

using kernel::Instr;

namespace {

using Values = Code::Values;

class MapEmitter {
 public:
  MapEmitter(Code& code, const MapNest& nest, const Values& arguments) : code_(code), nest_(nest) {
    auto argument = arguments.begin();
    for (std::size_t i = 0; i < nest.groups.size(); ++i) base_.pointers.push_back(*argument++);
    for (std::size_t i = 0; i < nest.index_groups.size(); ++i) base_.indices.push_back(*argument++);
    for (const LoopDim& dim : nest.dims) {
      extents_.push_back(dim.is_static() ? code.i64(dim.extent) : *argument++);
    }
    if (argument != arguments.end()) cancel_ = *argument;
    base_.registers.resize(nest.instrs.size());
    vector_is_reduced_ = nest.vector_dim >= nest.num_outer;
    const int weight = nest.body_weight();
    const int wide = code.state().register_bytes == 64 ? 4 : code.state().register_bytes == 32 ? 2 : 1;
    unroll_ = nest.lanes == 1 ? 1 : weight <= 10 ? wide : weight <= 24 ? std::min(wide, 2) : 1;
    if (nest.dealt_dim >= 0) unroll_ = 1;
    side_by_side_ = weight > 10 && nest.period == 1 && nest.dealt_dim < 0 && hides_latency(weight);
    if (side_by_side_) unroll_ = 2;
    if (nest.period > 1) unroll_ = nest.period;
    if (passes_rows_once(nest)) unroll_ = vectors_beside_sums(nest, code.state(), weight);
    if (sums_short_rows(nest)) {
      numbers_ = by_numbers(nest, code.state());
      at_number_.emplace(code, *numbers_);
      unroll_ = 1;
    }
    const int num_masked = nest.num_masked();
    // No tail where nothing would be masked: rows are rounded up to whole vectors.
    rounds_up_ = num_masked == 0 && !vector_is_reduced_ && std::ranges::count(nest.has_room, true) > 0;
    if (rounds_up_) {
      Value*& rows = extents_[static_cast<std::size_t>(nest.vector_dim)];
      rows = code.b.CreateAnd(code.b.CreateAdd(rows, code.i64(nest.lanes - 1)), code.i64(-nest.lanes));
    }
    // One masked loop instead of a loop and a tail, where the code is long and masks are free or few.
    constexpr int weight_of_mask = 16;
    masked_only_ = nest.period == 1 && !rounds_up_ && weight > 40 && code.held == nullptr &&
                   (code.state().masks_freely() || weight_of_mask * num_masked <= weight);
  }

  // Whether two vectors at once pay in spite of twice the code: a function's instructions wait for one another, and the processor looks only so far
  // ahead. Not where vectors would be left over, with code of their own.
  bool hides_latency(int weight) const {
    constexpr int longest = 256;
    if (nest_.lanes == 1 || weight > longest || code_.held != nullptr || vector_is_reduced_) return false;
    if (code_.state().register_bytes < 64) return false;  // where a vector is two registers, or four, already
    const LoopDim& dim = nest_.dims[static_cast<std::size_t>(nest_.vector_dim)];
    return dim.is_static() && dim.extent % (2 * nest_.lanes) == 0;
  }

  void emit() {
    // Where rows are changed in place, a masked one keeps the next one waiting: its store seems to reach into that.
    constexpr int most_in_place = 4;
    const int pieces = std::exchange(code_.most_pieces, nest_.is_in_place() ? most_in_place : code_.most_pieces);
    if (finishes_in_lanes())
      finish_in_lanes();
    else
      outer(0, base_);
    code_.most_pieces = pieces;
  }

 private:
  int num_dims() const { return static_cast<int>(nest_.dims.size()); }
  Value* extent(int dim) const { return extents_[static_cast<std::size_t>(dim)]; }
  // Points of one iteration over a dim. The vector dim, if it is an outer one, runs inside the others of them.
  std::int64_t points_inside(int dim) const {
    const auto place = [&](int d) {
      return d == nest_.vector_dim && !vector_is_reduced_ ? nest_.num_outer : d < nest_.num_outer ? d : d + 1;
    };
    std::int64_t points = 1;
    for (int d = 0; d < num_dims(); ++d)
      if (place(d) > place(dim)) points *= std::max<std::int64_t>(nest_.dims[static_cast<std::size_t>(d)].extent, 1);
    return points;
  }

  // Code::loop over a dim, which in a long nest goes piece by piece; once the flag is raised, pieces are empty.
  Values loop(int dim, Value* begin, Value* end, std::int64_t step, Values carried,
              const std::function<Values(Value* iv, const Values& carried)>& body) {
    if (cancel_ == nullptr) return code_.loop(begin, end, step, std::move(carried), body);
    const std::int64_t unheard = nest_.most_points_unheard() / points_inside(dim);
    const std::int64_t piece = std::max<std::int64_t>(unheard / step, 1) * step;
    const auto* first = llvm::dyn_cast<llvm::ConstantInt>(begin);
    const auto* last = llvm::dyn_cast<llvm::ConstantInt>(end);
    if (first != nullptr && last != nullptr && last->getSExtValue() - first->getSExtValue() <= piece)
      return code_.loop(begin, end, step, std::move(carried), body);
    return code_.loop(begin, end, piece, std::move(carried), [&](Value* from, const Values& so_far) {
      Value* to = code_.b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, code_.b.CreateAdd(from, code_.i64(piece)), end);
      to = code_.b.CreateSelect(code_.is_cancelled(cancel_), from, to);
      return code_.loop(from, to, step, so_far, body);
    });
  }
  void loop(int dim, Value* begin, Value* end, std::int64_t step, const std::function<void(Value* iv)>& body) {
    loop(dim, begin, end, step, Values{}, [&](Value* iv, const Values&) {
      body(iv);
      return Values{};
    });
  }
  bool has_reduced_dims() const { return num_dims() > nest_.num_outer; }

  // The same point, `count` elements further along a dim.
  Point moved(const Point& point, int dim, Value* count) {
    Point next = point;
    for (std::size_t g = 0; g < nest_.groups.size(); ++g) {
      const AccessGroup& group = nest_.groups[g];
      next.pointers[g] = code_.offset(point.pointers[g], count,
                                      group.coefficients[static_cast<std::size_t>(dim)] * bytes_of(group.dtype));
    }
    for (std::size_t g = 0; g < nest_.index_groups.size(); ++g) {
      const std::int64_t step = nest_.index_groups[g].coefficients[static_cast<std::size_t>(dim)];
      if (step != 0) {
        next.indices[g] = code_.b.CreateAdd(point.indices[g], code_.b.CreateMul(count, code_.i64(step)));
      }
    }
    return next;
  }

  // Reductions of vectors of which each result goes to the lane beside the one before: as many as a vector has lanes are combined
  // together, and what follows is done once, on a vector of results.
  bool finishes_in_lanes() const {
    if (!vector_is_reduced_ || nest_.num_outer != 1 || nest_.vector_dim < 0) return false;
    if (nest_.dims[0].extent < (nest_.dims[0].is_static() ? 2 : nest_.lanes)) return false;
    for (int i = nest_.body_end; i < static_cast<int>(nest_.instrs.size()); ++i) {
      const Instr& it = nest_.instr(i);
      const DType dtype = it.dtype;
      if (!is_float(dtype) || lanes_of(dtype) != nest_.lanes || !it.access.indirect.empty()) return false;
      if (it.kind == Instr::Kind::Index || (it.kind == Instr::Kind::Store && coefficient(i) != 1)) return false;
      if (it.kind == Instr::Kind::Load && (it.args[0] >= 0 || coefficient(i) < 0 || coefficient(i) > 1)) return false;
      if (it.kind == Instr::Kind::Store && it.args[1] >= 0) return false;
    }
    return true;
  }

  std::int64_t coefficient(int i) const {
    return nest_.groups[static_cast<std::size_t>(nest_.uses[static_cast<std::size_t>(i)].group)].coefficients[0];
  }

  void finish_in_lanes() {
    if (!nest_.dims[0].is_static()) {  // whole vectors of results, then one by one
      Value* whole = code_.b.CreateAnd(extent(0), code_.i64(-nest_.lanes));
      loop(0, code_.i64(0), whole, nest_.lanes,
           [&](Value* first) { finish_block(moved(base_, 0, first), nest_.lanes); });
      return loop(0, whole, extent(0), 1, [&](Value* iv) { at_outer({moved(base_, 0, iv)}, 1); });
    }
    const std::int64_t count = nest_.dims[0].extent, whole = count / nest_.lanes * nest_.lanes;
    loop(0, code_.i64(0), code_.i64(whole), nest_.lanes,
         [&](Value* first) { finish_block(moved(base_, 0, first), nest_.lanes); });
    if (whole < count) finish_block(moved(base_, 0, code_.i64(whole)), count - whole);
  }

  void finish_block(const Point& start, std::int64_t count) {
    std::vector<Values> columns(static_cast<std::size_t>(nest_.finish - nest_.body_end));
    for (std::int64_t n = 0; n < count; ++n) {
      const Values sums = reduce(1, {moved(start, 0, code_.i64(n))}, identities(1));
      for (std::size_t r = 0; r < sums.size(); ++r) columns[r].push_back(sums[r]);
    }
    // The nest of what follows: the outer dim fills the vector.
    MapNest finish = nest_;
    finish.vector_dim = 0;
    finish.has_room.assign(nest_.instrs.size(), false);
    finish.woven.assign(nest_.instrs.size(), -1);
    for (int i = nest_.body_end; i < static_cast<int>(nest_.instrs.size()); ++i) {
      const Instr& it = nest_.instr(i);
      const bool loads_one = it.kind == Instr::Kind::Load && coefficient(i) == 0;
      finish.uniform[static_cast<std::size_t>(i)] = loads_one || it.kind == Instr::Kind::Const;
    }
    Values arguments = base_.pointers;
    arguments.insert(arguments.end(), base_.indices.begin(), base_.indices.end());
    for (std::size_t d = 0; d < nest_.dims.size(); ++d)
      if (!nest_.dims[d].is_static()) arguments.push_back(extents_[d]);
    MapEmitter emitter(code_, finish, arguments);
    Point point = emitter.points_at(start, code_.i64(0), 1, code_.i64(count))[0];
    for (int r = nest_.body_end; r < nest_.finish; ++r) {
      const Instr& it = nest_.instr(r);
      point.registers[static_cast<std::size_t>(r)] = of_bytes(
          it, code_.combine_halves(combiner(it), it.dtype, columns[static_cast<std::size_t>(r - nest_.body_end)]));
    }
    emitter.at_point_.instrs(point, nest_.finish, static_cast<int>(nest_.instrs.size()), nest_.lanes);
  }

  // Bools that come from memory are reduced as they lie there, in bytes: that takes fewer instructions than the bits of masks do.
  bool is_in_bytes(const Instr& reduced) const {
    return reduced.dtype == DType::Bool && nest_.instr(reduced.args[0]).kind == Instr::Kind::Load;
  }
  Value* in_bytes(const Instr& reduced, Value* value) {
    if (!is_in_bytes(reduced)) return value;
    // A load is compared with 0: 0 or 1, whatever a byte holds.
    const auto* test = llvm::dyn_cast<llvm::ICmpInst>(value);
    if (test == nullptr || test->getPredicate() != llvm::ICmpInst::ICMP_NE)
      return code_.b.CreateZExt(value, value->getType()->getWithNewBitWidth(8));
    Value* bytes = test->getOperand(0);
    return code_.b.CreateBinaryIntrinsic(llvm::Intrinsic::umin, bytes, llvm::ConstantInt::get(bytes->getType(), 1));
  }
  Value* of_bytes(const Instr& reduced, Value* value) {
    return is_in_bytes(reduced) ? code_.b.CreateIsNotNull(value) : value;
  }

  Values identities(std::size_t points) {
    Values accumulators;
    for (std::size_t p = 0; p < points; ++p) {
      for (int r = nest_.body_end; r < nest_.finish; ++r) accumulators.push_back(identity(nest_.instr(r)));
    }
    return accumulators;
  }
  Value* identity(const Instr& reduced) {
    return in_bytes(reduced, code_.widen(code_.identity(combiner(reduced), reduced.dtype), nest_.lanes));
  }

  // Loops over the outer dims but the vector dim; then the vector dim, if it is one of them.
  void outer(int dim, const Point& point) {
    if (dim == nest_.num_outer) {
      if (nest_.vector_dim < 0 || vector_is_reduced_) return at_outer({point}, 1);
      return nest_.square_dim < 0 ? vector_loop(point) : square_loop(point);
    }
    if (dim == nest_.vector_dim || dim == nest_.square_dim) return outer(dim + 1, point);
    loop(dim, code_.i64(0), extent(dim), 1, [&](Value* iv) { outer(dim + 1, moved(point, dim, iv)); });
  }

  // Cuts [0, n) of the vector dim into blocks of up to `unroll_` vectors.
  template <class Block> void cut_vector_dim(Value* n, const Block& block) {
    const std::int64_t lanes = nest_.lanes;
    const auto* known = llvm::dyn_cast<llvm::ConstantInt>(n);
    if (masked_only_ && (known == nullptr || known->getSExtValue() % lanes != 0)) {
      return block.loop(code_.i64(0), n, lanes, 1, n);
    }
    if (known != nullptr) {
      const std::int64_t count = known->getSExtValue(), wide = lanes * unroll_;
      const std::int64_t main = count / wide * wide;
      block.loop(code_.i64(0), code_.i64(main), wide, unroll_, nullptr);
      if (main < count) block.once(code_.i64(main), static_cast<int>(divided_up(count - main, lanes)), n);
      return;
    }
    const std::int64_t most = nest_.dims[static_cast<std::size_t>(nest_.vector_dim)].extent, wide = lanes * unroll_;
    if (nest_.period > 1) {  // vectors of a block differ
      Value* main = code_.b.CreateSub(n, code_.b.CreateURem(n, code_.i64(wide)));
      block.loop(code_.i64(0), main, wide, unroll_, nullptr);
      return code_.when(code_.b.CreateICmpSLT(main, n), [&] { block.once(main, unroll_, n); });
    }
    // Loops over more points than there can be are left out: their code would be as long as that which runs.
    Value* done = code_.i64(0);
    const auto loop_of = [&](std::int64_t points, int vectors) {
      if (points > most) return;
      Value* end = code_.b.CreateAnd(n, code_.i64(-points));
      block.loop(done, end, points, vectors, nullptr);
      done = end;
    };
    loop_of(wide, unroll_);
    if (unroll_ > 1) loop_of(lanes, 1);
    if (!rounds_up_) block.loop(done, n, lanes, 1, n);
  }

  // `count` vectors starting at element `first`; lanes at or beyond `end` (null: none) are masked off.
  std::vector<Point> points_at(const Point& point, Value* first, int count, Value* end) {
    std::vector<Point> points;
    for (int u = 0; u < count; ++u) {
      Value* start = code_.b.CreateAdd(first, code_.i64(u * nest_.lanes));
      Point next = moved(moved(point, nest_.vector_dim, first), nest_.vector_dim, code_.i64(u * nest_.lanes));
      next.vector = u;
      for (std::size_t g = 0; g < nest_.groups.size(); ++g) {
        const AccessGroup& group = nest_.groups[g];  // a block of vectors begins with a row
        if (!group.crossed) continue;
        Value* row = code_.b.CreateUDiv(first, code_.i64(group.crossed->extent));
        next.pointers[g] = code_.offset(point.pointers[g], row, group.crossed->outer * bytes_of(group.dtype));
      }
      if (end != nullptr) {
        Value* active = code_.b.CreateSub(end, start);
        const auto* known = llvm::dyn_cast<llvm::ConstantInt>(active);
        if (known == nullptr || known->getSExtValue() < nest_.lanes)
          next.mask =
              code_.tail_mask(nest_.lanes, active, nest_.dims[static_cast<std::size_t>(nest_.vector_dim)].extent);
      }
      points.push_back(std::move(next));
    }
    return points;
  }

  struct OuterBlocks {
    MapEmitter& emitter;
    const Point& point;
    void loop(Value* begin, Value* end, std::int64_t step, int count, Value* limit) const {
      emitter.loop(emitter.nest_.vector_dim, begin, end, step, [&](Value* iv) { once(iv, count, limit); });
    }
    void once(Value* first, int count, Value* limit) const {
      emitter.at_outer(emitter.points_at(point, first, count, limit), emitter.nest_.lanes);
    }
  };

  void vector_loop(Point point) {
    if (!has_reduced_dims()) at_point_.uniform_instrs(point);
    const auto all_vectors = [&] { cut_vector_dim(extent(nest_.vector_dim), OuterBlocks{*this, point}); };
    const int condition = condition_of_rows();
    if (condition < 0) return all_vectors();
    Value*& holds = point.registers[static_cast<std::size_t>(condition)];
    code_.when(std::exchange(holds, code_.b.getTrue()), all_vectors);
  }

  // What decides for whole rows whether anything is written, -1 if nothing does: long rows for which it does not hold are passed over at once.
  int condition_of_rows() const {
    // A branch that is not foreseen costs as much as some masked stores.
    const std::int64_t least_vectors = code_.state().masks_freely() ? 4 : 1;
    const LoopDim& dim = nest_.dims[static_cast<std::size_t>(nest_.vector_dim)];
    if (has_reduced_dims() || code_.held != nullptr) return -1;
    if (dim.is_static() && dim.extent <= (least_vectors - 1) * nest_.lanes) return -1;
    const int condition = condition_of_stores();
    return condition >= 0 && nest_.hoistable[static_cast<std::size_t>(condition)] ? condition : -1;
  }

  // The predicate that all stores have in common, -1 if there is none.
  int condition_of_stores() const {
    int condition = -1;
    for (const Instr& it : nest_.instrs) {
      if (it.kind != Instr::Kind::Store) continue;
      const int predicate = it.args[1];
      if (predicate < 0 || (condition >= 0 && predicate != condition)) return -1;
      condition = predicate;
    }
    return condition;
  }

  // The vector dim and the square dim, square by square.
  void square_loop(const Point& point) {
    const int rows = nest_.vector_dim, columns = nest_.square_dim;
    const std::int64_t lanes = nest_.lanes, count = nest_.dims[static_cast<std::size_t>(columns)].extent,
                       whole = count / lanes * lanes;
    const auto band = [&](Value* first, Value* end) {
      Point start = points_at(point, first, 1, end)[0];
      at_point_.row_instrs(start);
      Value* active = end == nullptr ? nullptr : code_.b.CreateSub(end, first);
      const auto all_columns = [&] {
        loop(columns, code_.i64(0), code_.i64(whole), lanes,
             [&](Value* column) { square(moved(start, columns, column), active, lanes); });
        if (whole < count) square(moved(start, columns, code_.i64(whole)), active, count - whole);
      };
      const int condition = condition_of_stores();
      if (condition < 0 || !nest_.by_row[static_cast<std::size_t>(condition)]) return all_columns();
      code_.when(code_.b.CreateOrReduce(code_.widen(at_point_.lanes_where(start, condition), nest_.lanes)),
                 all_columns);
    };
    Value* n = extent(rows);
    Value* full = code_.b.CreateAnd(n, code_.i64(-lanes));
    loop(rows, code_.i64(0), full, lanes, [&](Value* first) { band(first, nullptr); });
    loop(rows, full, n, lanes, [&](Value* first) { band(first, n); });
  }

  // Whole squares that are only moved need no memory between.
  bool copies_square(const Point& start, std::int64_t columns) {
    if (nest_.instrs.size() != 2) return false;
    const Instr &load = nest_.instrs[0], &store = nest_.instrs[1];
    if (load.kind != Instr::Kind::Load || store.kind != Instr::Kind::Store) return false;
    const bool turns_rows = nest_.squares[0] && !nest_.squares[1], whole = columns == nest_.lanes;
    if (nest_.squares[0] == nest_.squares[1] || !(turns_rows || whole)) return false;
    const auto stride = [&](std::size_t i, int dim) {
      return nest_.groups[static_cast<std::size_t>(nest_.uses[i].group)].coefficients[static_cast<std::size_t>(dim)];
    };
    const std::size_t even = turns_rows ? 1 : 0;
    if (stride(even, nest_.vector_dim) != 1) return false;
    const auto place = [&](std::size_t i) {
      return code_.offset(start.pointers[static_cast<std::size_t>(nest_.uses[i].group)],
                          nest_.uses[i].displacement * bytes_of(load.dtype));
    };
    const int from = turns_rows ? nest_.vector_dim : nest_.square_dim,
              to = turns_rows ? nest_.square_dim : nest_.vector_dim;
    code_.copy_transposed(load.dtype, place(0), stride(0, from), nest_.lanes, static_cast<int>(columns), place(1),
                          stride(1, to));
    return true;
  }

  void square(const Point& start, Value* active, std::int64_t columns) {
    if (active == nullptr && copies_square(start, columns)) return;
    const auto move_squares = [&](Instr::Kind kind) {
      for (std::size_t i = 0; i < nest_.instrs.size(); ++i)
        if (nest_.instrs[i].kind == kind && nest_.squares[i])
          at_point_.move_square(start, static_cast<int>(i), active, columns);
    };
    // Their memory is known before the loop over their columns, so that code behind it finds it.
    for (std::size_t i = 0; i < nest_.instrs.size(); ++i)
      if (nest_.squares[i]) at_point_.square(static_cast<int>(i));
    move_squares(Instr::Kind::Load);
    loop(nest_.square_dim, code_.i64(0), code_.i64(columns), 1, [&](Value* column) {
      Point point = moved(start, nest_.square_dim, column);
      point.column = column;
      at_outer({point}, nest_.lanes);
    });
    move_squares(Instr::Kind::Store);
  }

  // Code at points of the outer dims, which may be vectors: the reduction, then the finish.
  void at_outer(std::vector<Point> points, int lanes) {
    if (!has_reduced_dims()) {
      const int num_instrs = static_cast<int>(nest_.instrs.size()), together = side_by_side_ ? 1 : num_instrs;
      const int condition = lanes == 1 && code_.held == nullptr ? condition_of_stores() : -1;
      if (condition >= 0) return at_number_if(condition, points[0]);
      for (int i = 0; i < num_instrs; i += together)
        for (Point& point : points) at_point_.instrs(point, i, i + together, lanes);
      return;
    }
    const Values accumulators =
        nest_.dealt_dim < 0 ? reduce(nest_.num_outer, points, identities(points.size())) : reduce_lane_by_lane(points);
    std::size_t next = 0;
    for (Point& point : points) {
      for (int r = nest_.body_end; r < nest_.finish; ++r) {
        const Instr& reduced = nest_.instr(r);
        Value* value = accumulators[next++];
        if (vector_is_reduced_) value = code_.combine_halves(combiner(reduced), reduced.dtype, value);
        point.registers[static_cast<std::size_t>(r)] = of_bytes(reduced, value);
      }
      at_point_.instrs(point, nest_.finish, static_cast<int>(nest_.instrs.size()), lanes);
    }
  }

  // One number after the other, where it is written at all: the branch that a store takes anyway, around all that it needs.
  void at_number_if(int condition, Point point) {
    at_point_.instrs(point, 0, condition + 1, 1);
    code_.when(point.registers[static_cast<std::size_t>(condition)], [&] {
      point.registers[static_cast<std::size_t>(condition)] = code_.b.getTrue();
      at_point_.instrs(point, condition + 1, static_cast<int>(nest_.instrs.size()), 1);
    });
  }

  struct ReducedBlocks {
    MapEmitter& emitter;
    const Point& point;
    int dim;
    Values& accumulators;
    void loop(Value* begin, Value* end, std::int64_t step, int count, Value* limit) const {
      accumulators = emitter.loop(dim, begin, end, step, accumulators,
                                  [&](Value* iv, const Values& carried) { return block(iv, count, limit, carried); });
    }
    void once(Value* first, int count, Value* limit) const { accumulators = block(first, count, limit, accumulators); }
    // Vectors in order into the same lanes.
    Values block(Value* first, int count, Value* limit, Values carried) const {
      if (emitter.at_number_) return emitter.accumulate_rows(point, first, limit, std::move(carried));
      for (const Point& vector : emitter.points_at(point, first, count, limit)) {
        carried = emitter.reduce(dim + 1, {vector}, carried);
      }
      return carried;
    }
  };

  // What lane l of a vector would take in, for each l; the sums are then combined as the lanes would be.
  Values reduce_lane_by_lane(const std::vector<Point>& points) {
    const Values nothing = identities(points.size());
    Values sums;  // in memory, by accumulator
    for (Value* identity : nothing) sums.push_back(code_.stack_room(identity->getType(), nest_.lanes));
    const auto place = [&](std::size_t i, Value* lane) {
      return code_.b.CreateGEP(nothing[i]->getType(), sums[i], lane);
    };
    Value* num_lanes = code_.i64(nest_.lanes);
    const LoopDim& dealt = nest_.dims[static_cast<std::size_t>(nest_.dealt_dim)];
    Value* used = dealt.is_static()
                      ? code_.i64(std::min<std::int64_t>(dealt.extent, nest_.lanes))
                      : code_.b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, extent(nest_.dealt_dim), num_lanes);
    code_.loop(code_.i64(0), used, 1, [&](Value* lane) {
      first_dealt_ = lane;
      const Values sum = reduce(nest_.num_outer, points, nothing);
      for (std::size_t i = 0; i < sum.size(); ++i) code_.b.CreateStore(sum[i], place(i, lane));
    });
    code_.loop(used, num_lanes, 1, [&](Value* lane) {
      for (std::size_t i = 0; i < nothing.size(); ++i) code_.b.CreateStore(nothing[i], place(i, lane));
    });
    Values results;
    for (std::size_t i = 0; i < nothing.size(); ++i) {
      const Instr& reduced = nest_.instr(nest_.body_end + static_cast<int>(i) % (nest_.finish - nest_.body_end));
      Values lanes;
      for (int l = 0; l < nest_.lanes; ++l)
        lanes.push_back(code_.b.CreateLoad(nothing[i]->getType(), place(i, code_.i64(l))));
      for (std::size_t half = lanes.size() / 2; half > 0; half /= 2)
        for (std::size_t l = 0; l < half; ++l)
          lanes[l] = code_.op(combiner(reduced), reduced.dtype, reduced.dtype, {lanes[l], lanes[l + half]});
      results.push_back(lanes[0]);
    }
    return results;
  }

  Values reduce(int dim, std::vector<Point> points, Values accumulators) {
    if (dim == num_dims()) return accumulate(points, accumulators);
    if (dim != nest_.vector_dim) {
      const bool dealt = dim == nest_.dealt_dim;
      return loop(dim, dealt ? first_dealt_ : code_.i64(0), extent(dim), dealt ? nest_.lanes : 1, accumulators,
                  [&](Value* iv, const Values& carried) {
                    std::vector<Point> inner;
                    for (const Point& point : points) inner.push_back(moved(point, dim, iv));
                    return reduce(dim + 1, std::move(inner), carried);
                  });
    }
    Point point = points[0];
    if (dim + 1 == num_dims()) at_point_.uniform_instrs(point);
    cut_vector_dim(extent(dim), ReducedBlocks{*this, point, dim, accumulators});
    return accumulators;
  }

  // A vector of short rows, see sums_short_rows().
  Values accumulate_rows(const Point& point, Value* first, Value* limit, Values accumulators) {
    const auto rows = static_cast<std::size_t>(nest_.vector_dim);
    const std::int64_t length = nest_.dims[rows + 1].extent;
    Value* const active = limit == nullptr ? nullptr : code_.b.CreateSub(limit, first);
    const std::int64_t most = nest_.dims[rows].extent;
    Value* const mask = active == nullptr ? nullptr : code_.tail_mask(nest_.lanes, active, most);
    std::vector<Values> numbers(static_cast<std::size_t>(nest_.finish - nest_.body_end));  // by reduction
    std::vector<Values> factors(numbers.size());                                           // of Fma
    for (std::int64_t v = 0; v < length; ++v) {
      Point next = point;
      Value* at = code_.b.CreateAdd(code_.b.CreateMul(first, code_.i64(length)), code_.i64(v * nest_.lanes));
      for (std::size_t g = 0; g < nest_.groups.size(); ++g)
        next.pointers[g] = code_.offset(point.pointers[g], at,
                                        nest_.groups[g].coefficients[rows + 1] * bytes_of(nest_.groups[g].dtype));
      if (active != nullptr) {
        Value* left = code_.b.CreateSub(code_.b.CreateMul(active, code_.i64(length)), code_.i64(v * nest_.lanes));
        next.mask = code_.tail_mask(nest_.lanes, left, most * length);
      }
      at_number_->instrs(next, 0, nest_.body_end, nest_.lanes);
      for (std::size_t r = 0; r < numbers.size(); ++r) {
        const Instr& reduced = nest_.instr(nest_.body_end + static_cast<int>(r));
        numbers[r].push_back(next.registers[static_cast<std::size_t>(reduced.args[0])]);
        if (reduced.op == kernel::ScalarOp::Fma)
          factors[r].push_back(next.registers[static_cast<std::size_t>(reduced.args[1])]);
      }
    }
    for (std::size_t r = 0; r < numbers.size(); ++r) {
      const Values values = code_.unwoven(std::move(numbers[r]));
      const Values others = factors[r].empty() ? Values{} : code_.unwoven(std::move(factors[r]));
      for (std::size_t k = 0; k < values.size(); ++k)
        add(nest_.instr(nest_.body_end + static_cast<int>(r)), accumulators[r], values[k],
            others.empty() ? nullptr : others[k], mask);
    }
    return accumulators;
  }

  // One more number, of Fma a product, to each lane within the mask; the others get one that changes nothing. A choice between the sum and the one before
  // would be waited for in each step.
  void add(const Instr& reduced, Value*& accumulator, Value* value, Value* factor, Value* mask) {
    const auto within_mask = [&](Value* of, Value* otherwise) {
      return mask == nullptr ? of : code_.b.CreateSelect(mask, of, otherwise);
    };
    if (factor != nullptr) {
      Value* zero = code_.zero(reduced.dtype, nest_.lanes);
      accumulator = code_.fma(within_mask(value, zero), within_mask(factor, zero), accumulator);
    } else {
      accumulator =
          code_.op(reduced.op, reduced.dtype, reduced.dtype, {accumulator, within_mask(value, identity(reduced))});
    }
  }

  Values accumulate(std::vector<Point>& points, Values accumulators) {
    std::size_t next = 0;
    for (Point& point : points) {
      Value* mask = vector_is_reduced_ ? point.mask : nullptr;  // else nobody reads the lanes behind the end
      at_point_.instrs(point, 0, nest_.body_end, nest_.lanes);
      for (int r = nest_.body_end; r < nest_.finish; ++r) {
        const Instr& reduced = nest_.instr(r);
        Value* value =
            code_.widen(in_bytes(reduced, point.registers[static_cast<std::size_t>(reduced.args[0])]), nest_.lanes);
        Value* factor = nullptr;
        if (reduced.op == kernel::ScalarOp::Fma)
          factor = code_.widen(point.registers[static_cast<std::size_t>(reduced.args[1])], nest_.lanes);
        add(reduced, accumulators[next++], value, factor, mask);
      }
    }
    return accumulators;
  }

  Code& code_;
  const MapNest& nest_;
  PointCode at_point_{code_, nest_};
  std::optional<MapNest> numbers_;  // see sums_short_rows()
  std::optional<PointCode> at_number_;
  Point base_;
  Values extents_;
  Value* cancel_ = nullptr;  // of a long nest
  bool vector_is_reduced_ = false, masked_only_ = false, rounds_up_ = false, side_by_side_ = false;
  Value* first_dealt_ = nullptr;  // where a lane's sum begins
  int unroll_ = 1;
};

}  // namespace

void emit_nest(Code& code, const MapNest& nest, const Code::Values& arguments) {
  MapEmitter(code, nest, arguments).emit();
}

}  // namespace hotloop::codegen
