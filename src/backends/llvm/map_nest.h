// A Map made ready to emit: fewer and longer dims, accesses grouped by how their address moves; and its code.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backends/llvm/code.h"

namespace hotloop::codegen {

struct LoopDim {
  kernel::Var var = -1;
  std::int64_t extent = 1;      // if static
  kernel::Var extent_var = -1;  // else extent_var * factor points
  std::int64_t factor = 1;
  bool dealt = false;  // dim 0 of a split Map: its length is an argument of the function
  bool is_static() const { return extent_var < 0 && !dealt; }
};

// Accesses whose addresses differ by constants share a pointer.
struct AccessGroup {
  int buffer = -1;
  DType dtype = DType::F32;
  kernel::Affine outside;                  // what does not depend on the dims: the caller adds it
  std::vector<std::int64_t> coefficients;  // by dim, in elements
  // Of an access whose two dims, evenly spaced for all others, became one: its strides along them, and the extent of the inner one.
  struct Crossed {
    std::int64_t outer, inner, extent;
    bool operator==(const Crossed&) const = default;
  };
  std::optional<Crossed> crossed;
  bool is_even = false;  // of indices: `outside` is known to be
};
struct IndexUse {
  int group = -1;
  std::int64_t displacement = 0;  // elements
};

struct MapNest {
  std::vector<LoopDim> dims;
  int num_outer = 0;
  int vector_dim = -1;
  int lanes = 1;
  // A reduced dim that is summed over lanes while another one fills vectors: as many sums as there are lanes are taken one after the other, each
  // for all points of a vector.
  int dealt_dim = -1;
  // An outer dim that runs through squares of which the vector dim is the other side, and by instruction whether it reads or writes whole squares.
  int square_dim = -1;
  std::vector<bool> squares;
  // With squares, by instruction: whether it computes the same for all columns and all that is summed.
  std::vector<bool> by_row;
  // By instruction: what moves along the rows of a tile is a worker's own, with room for as many rows as a tile has at most. A tail of it is moved as a whole
  // vector: what is there of it nobody asks for.
  std::vector<bool> has_room;
  std::vector<bool>
      strays;  // by instruction: a load whose predicate keeps it from more than a page in front of its buffer or behind it
  std::vector<bool> blends;  // by instruction: a store that leaves points out writes there again what is there
  std::vector<kernel::Instr> instrs;
  // By instruction: of loads, or stores, of all that the points of a vector span, one number apart, the first load, which reads for all of them, or
  // the last store, which writes; else -1.
  std::vector<int> woven;
  int body_end = 0;  // where the Reduced instructions begin
  int finish = 0;    // where they end
  std::vector<AccessGroup> groups, index_groups;
  std::vector<IndexUse> uses;  // by instruction
  std::vector<bool> uniform;   // by instruction: one value for all points of the vector dim
  std::vector<std::optional<AccessGroup::Crossed>> crossed;  // by instruction, until accesses are grouped
  int period = 1;                                            // vectors after which crossed accesses repeat
  std::vector<bool> hoistable;  // uniform and allowed in front of the loop over the vector dim

  // Finds has_room, strays, woven, uniform and hoistable: all that follows from how accesses move along the vector dim. To be asked for again after any change
  // to that dim or to the coefficients of groups.
  void derive(const ModuleState& state);

  const kernel::Instr& instr(int i) const { return instrs[static_cast<std::size_t>(i)]; }
  // Whether an element that is written was read before at its place, so that rows of it follow each other as loads and stores.
  bool is_in_place() const;
  // Accesses of which a tail is masked.
  int num_masked() const;
  int body_weight() const;  // instructions that cost something in the vector loop
  // Points that may go by before a cancelled call is heard: some milliseconds of a slow core, also where each is read from anywhere.
  std::int64_t most_points_unheard() const;
  bool is_long() const;     // so that its code looks at the flag that cancels
  std::string key() const;  // equal keys, equal code
};

// `in_place`: to be emitted where it stands, without squares.
MapNest normalised(const ModuleState& state, const kernel::Map& map, bool split, bool in_place = false);

// `arguments`: the addresses of the groups, the indices of the index groups, the extents that are not static; of a long nest the
// address of the flag that cancels.
void emit_nest(Code& code, const MapNest& nest, const Code::Values& arguments);

}  // namespace hotloop::codegen
