#include "backends/llvm/clocks.h"

#include <llvm/IR/InlineAsm.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/TargetParser/Triple.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>

#include "backends/llvm/code.h"

namespace hotloop::codegen {
namespace {

using kernel::Dot;
using kernel::Extent;
using kernel::Map;
using kernel::Pack;

constexpr std::size_t word_bytes = 8, words_of_clock = sizeof(StatementClock) / word_bytes;

Value* now(Code& code) {
  if (!llvm::Triple(code.state().module.getTargetTriple()).isAArch64())
    return code.b.CreateIntrinsic(llvm::Intrinsic::readcyclecounter, {}, {});
  // Programs may read this counter there, but not that of cycles; LLVM 19 knows only the latter.
  auto* type = llvm::FunctionType::get(code.b.getInt64Ty(), false);
  return code.b.CreateCall(llvm::InlineAsm::get(type, "mrs $0, cntvct_el0", "=r", /*hasSideEffects=*/true));
}

std::string text_of(const Extent& extent) { return (extent.is_static() ? "" : "<=") + std::to_string(extent.bound); }

// How a statement is told, and how much of it one run is.
struct Described {
  std::string text;
  Value* points;
  bool multiplies = false;
};

Described describe(Code& code, const Frame& frame, const Dot& dot) {
  Described result{"dot " + dot.name + " " + text_of(dot.m) + " x " + text_of(dot.n) + " of ", code.i64(0), true};
  const std::int64_t products = dot.pairs ? 2 : 1;  // of a step
  for (const kernel::DotSegment& segment : dot.segments) {
    Value* steps = code.i64(products);
    for (const kernel::KDim& k : segment.k) steps = code.b.CreateMul(steps, frame.extent(code, k.extent));
    result.points = code.b.CreateAdd(result.points, steps);
    result.text += (&segment == dot.segments.data() ? "" : " + ") + std::to_string(products * segment.depth());
  }
  for (const Extent& extent : {dot.m, dot.n})
    result.points = code.b.CreateMul(result.points, frame.extent(code, extent));
  return result;
}

Described describe(Code& code, const Frame& frame, const Map& map) {
  Described result{"map " + map.name, code.i64(1)};
  for (const kernel::Dim& dim : map.dims) {
    result.text += (&dim == map.dims.data() ? " " : " x ") + text_of(dim.extent);
    result.points = code.b.CreateMul(result.points, frame.extent(code, dim.extent));
  }
  return result;
}

Described describe(Code& code, const Frame&, const Pack& pack) {
  return {
      "pack " + code.state().buffer(pack.target).name + " " + std::to_string(pack.k) + " x " + std::to_string(pack.n),
      code.i64(pack.k * pack.n)};
}

std::optional<Described> describe(Code& code, const Frame& frame, const kernel::Stmt& statement) {
  if (const auto* dot = std::get_if<Dot>(&statement.node)) return describe(code, frame, *dot);
  if (const auto* map = std::get_if<Map>(&statement.node)) return describe(code, frame, *map);
  if (const auto* pack = std::get_if<Pack>(&statement.node)) return describe(code, frame, *pack);
  return std::nullopt;  // what others hold has clocks of its own
}

}  // namespace

Clocks::Clocks(llvm::Module& module)
    : module_(module), last_(words(1, "clocks.last")), table_(words(0, "clocks.table")) {
  llvm::InitializeNativeTargetAsmParser();  // reading the clock may be a line of assembly, see now()
}

llvm::GlobalVariable* Clocks::words(std::size_t count, const char* name) {
  auto* type = llvm::ArrayType::get(llvm::Type::getInt64Ty(module_.getContext()), count);
  auto* made = new llvm::GlobalVariable(module_, type, false, llvm::GlobalValue::ExternalLinkage,
                                        llvm::ConstantAggregateZero::get(type), name);
  made->setAlignment(llvm::Align(word_bytes));
  return made;
}

void Clocks::start(Code& code) { code.b.CreateStore(now(code), last_); }

void Clocks::read(Code& code, const Frame& frame, std::span<const kernel::Stmt> statements) {
  std::optional<Described> all;
  for (const kernel::Stmt& statement : statements) {
    std::optional<Described> one = describe(code, frame, statement);
    if (!one) continue;
    // Of a product and what runs beside it the products count.
    if (!all) {
      all = one;
      continue;
    }
    all->text += ", " + one->text;
    if (one->multiplies) all->points = one->points;
    all->multiplies = all->multiplies || one->multiplies;
  }
  if (!all) return;
  Value* const time = now(code);
  const auto load = [&](Value* word) { return code.b.CreateLoad(code.b.getInt64Ty(), word); };
  const auto add = [&](std::size_t member, Value* amount) {
    const std::size_t own = statements_.size() * sizeof(StatementClock);
    Value* word = code.offset(table_, static_cast<std::int64_t>(own + member));
    code.b.CreateStore(code.b.CreateAdd(load(word), amount), word);
  };
  add(offsetof(StatementClock, runs), code.i64(1));
  add(offsetof(StatementClock, points), all->points);
  add(offsetof(StatementClock, ticks), code.b.CreateSub(time, load(last_)));
  code.b.CreateStore(time, last_);
  statements_.push_back({std::move(all->text), all->multiplies});
}

std::vector<ClockedStatement> Clocks::finish() {
  table_->replaceAllUsesWith(words(statements_.size() * words_of_clock, symbol));
  table_->eraseFromParent();
  return std::move(statements_);
}

}  // namespace hotloop::codegen
