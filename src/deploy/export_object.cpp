// The exported functions as LLVM IR: what the C source says in C, for several targets, of which one is chosen when a voice is made.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "deploy/exported_step.h"
#include "hotloop/error.h"

namespace hotloop::deploy {
namespace {

std::string text(std::int64_t value) { return std::to_string(value); }

// Writes a function's lines; values are numbered as they come.
class Writer {
 public:
  std::string out;
  std::string value(const std::string& expression) {
    const std::string name = "%v" + std::to_string(next_++);
    line(name + " = " + expression);
    return name;
  }
  void line(const std::string& instruction) { out += "  " + instruction + "\n"; }
  std::string offset(const std::string& pointer, const std::string& bytes) {
    return value("getelementptr i8, ptr " + pointer + ", i64 " + bytes);
  }
  std::string offset(const std::string& pointer, std::int64_t bytes) { return offset(pointer, text(bytes)); }
  std::string load(const std::string& type, const std::string& pointer) {
    return value("load " + type + ", ptr " + pointer);
  }
  void store(const std::string& type, const std::string& what, const std::string& pointer) {
    line("store " + type + " " + what + ", ptr " + pointer);
  }
  // A table of pointers on the stack.
  std::string table(const std::vector<std::string>& pointers) {
    const std::string at =
        value("alloca [" + text(std::max<std::int64_t>(std::ssize(pointers), 1)) + " x ptr], align 16");
    for (std::size_t i = 0; i < pointers.size(); ++i)
      store("ptr", pointers[i], offset(at, static_cast<std::int64_t>(i) * 8));
    return at;
  }
  // A KernelContext for one worker that nothing cancels, and the call.
  void run(const std::string& kernel, const std::string& arguments, const std::string& results,
           const std::string& shared, std::int64_t shared_bytes, std::int64_t rows, const std::string& turn) {
    const std::string context = value("alloca [" + text(sizeof(KernelContext)) + " x i8], align 16");
    const auto set = [&](std::size_t at, const std::string& type, const std::string& what) {
      store(type, what, offset(context, static_cast<std::int64_t>(at)));
    };
    set(offsetof(KernelContext, arguments), "ptr", arguments);
    set(offsetof(KernelContext, results), "ptr", results);
    set(offsetof(KernelContext, shared), "ptr", shared);
    set(offsetof(KernelContext, scratch), "ptr", offset(shared, shared_bytes));
    set(offsetof(KernelContext, rows), "i64", text(rows));
    set(offsetof(KernelContext, worker), "i64", "0");
    set(offsetof(KernelContext, num_workers), "i64", "1");
    set(offsetof(KernelContext, barrier), "ptr", "null");
    set(offsetof(KernelContext, team), "ptr", "null");
    set(offsetof(KernelContext, cancel), "ptr", "@$N.never");
    set(offsetof(KernelContext, turn), "i64", turn);
    line("call void @" + kernel + "(ptr " + context + ")");
  }

 private:
  int next_ = 0;
};

std::string symbol(const ExportedStep& step, const char* what, std::size_t variant) {
  return step.name + "." + what + "." + std::to_string(variant);
}

// The step of one variant: internal, called through the voice's table.
std::string step_function(const ExportedStep& step, std::size_t variant) {
  const Variant& v = step.variants[variant];
  const VoiceLayout layout(step);
  Writer w;
  const std::string current = w.load("i32", w.offset("%voice", layout.current));
  const std::string turn = w.value("zext i32 " + current + " to i64");
  const std::string other = w.value("sub i64 1, " + turn);
  const auto state = [&](const std::string& which) {
    const std::string bytes = w.value("mul i64 " + which + ", " + text(step.state_bytes));
    return w.offset(w.offset("%voice", bytes), layout.states);
  };
  const std::string before = state(turn), after = state(other);
  const std::string weights = w.load("ptr", w.offset("%voice", layout.weights));
  std::vector<std::string> arguments, results = {"%y"};
  for (std::int64_t at : step.state_offsets) {
    arguments.push_back(w.offset(before, at));
    results.push_back(w.offset(after, at));
  }
  for (std::size_t i = 0; i < step.inputs.size(); ++i) arguments.push_back("%x" + std::to_string(i));
  for (std::int64_t at : v.offsets) arguments.push_back(w.offset(weights, at));
  const std::string argument_table = w.table(arguments), result_table = w.table(results);
  w.run(symbol(step, "kernel", variant), argument_table, result_table, "%voice", v.step.shared(),
        v.step.program.max_rows, turn);
  w.store("i32", w.value("trunc i64 " + other + " to i32"), w.offset("%voice", layout.current));
  w.line("ret void");
  std::string parameters = "ptr %voice";
  for (std::size_t i = 0; i < step.inputs.size(); ++i) parameters += ", ptr %x" + std::to_string(i);
  return "define internal void @" + symbol(step, "step", variant) + "(" + parameters + ", ptr %y) nounwind {\n" +
         w.out + "}\n";
}

// NAME_step: the inputs, or copies of those over which y would be written while they are still read, to the step of the voice's variant.
std::string call_step(const ExportedStep& step) {
  const std::vector<std::int64_t> copies = step.copies();
  const std::size_t count = step.inputs.size();
  std::string out =
      "define void @$N_step(ptr %voice, ptr %x, ptr %y) nounwind {\n  %y.end = getelementptr i8, ptr %y, i64 " +
      std::to_string(step.y.bytes()) + "\n  br label %input0\n";
  std::string given;
  for (std::size_t i = 0; i < count; ++i) {
    out +=
        filled(R"(input$i:
  %x$i.at = getelementptr i8, ptr %x, i64 $o
  %x$i = $read
  %x$i.end = getelementptr i8, ptr %x$i, i64 $c
  %x$i.first = icmp ult ptr %x$i, %y.end
  %y$i.first = icmp ult ptr %y, %x$i.end
  %meet$i = and i1 %x$i.first, %y$i.first
  br i1 %meet$i, label %apart$i, label %given$i
apart$i:
  %copy$i = getelementptr i8, ptr %voice, i64 $k
  call void @llvm.memcpy.p0.p0.i64(ptr %copy$i, ptr %x$i, i64 $c, i1 false)
  br label %given$i
given$i:
  %from$i = phi ptr [ %x$i, %input$i ], [ %copy$i, %apart$i ]
  br label %$next
)",
               {{"$read", step.input_fields.empty() ? "getelementptr i8, ptr %x$i.at, i64 0" : "load ptr, ptr %x$i.at"},
                {"$o", std::to_string(step.input_fields.empty() ? 0 : 8 * i)},
                {"$c", std::to_string(step.inputs[i].bytes())},
                {"$k", text(copies[i])},
                {"$next", i + 1 < count ? "input" + std::to_string(i + 1) : "run"},
                {"$i", std::to_string(i)}});
    given += "ptr %from" + std::to_string(i) + ", ";
  }
  return out + R"(run:
  %variant.at = getelementptr i8, ptr %voice, i64 $V
  %variant = load ptr, ptr %variant.at
  %step = load ptr, ptr %variant
  tail call void %step(ptr %voice, )" +
         given + "ptr %y)\n  ret void\n}\n";
}

std::string prepare_function(const ExportedStep& step, std::size_t variant) {
  const Variant& v = step.variants[variant];
  Writer w;
  std::vector<std::string> arguments, results;
  for (std::size_t i = 0; i < step.params.size(); ++i)
    arguments.push_back(w.load("ptr", w.offset("%params", static_cast<std::int64_t>(i) * 8)));
  for (std::int64_t at : v.offsets) results.push_back(w.offset("%weights", at));
  const std::string argument_table = w.table(arguments), result_table = w.table(results);
  w.run(symbol(step, "prepare_kernel", variant), argument_table, result_table, w.offset("%weights", v.prepared_bytes),
        v.prepare.shared(), v.prepare.program.max_rows, "0");
  w.line("ret void");
  return "define internal void @" + symbol(step, "prepare", variant) + "(ptr %weights, ptr %params) nounwind {\n" +
         w.out + "}\n";
}

// What a level of the x86-64 psABI asks of CPUID leaf 1's ecx, leaf 7's ebx and leaf 0x80000001's ecx, and of the registers that the
// system keeps (XCR0).
struct Features {
  const char* level;
  std::uint32_t leaf1, leaf7, extended, registers;
};
constexpr std::uint32_t bits(std::initializer_list<int> all) {
  std::uint32_t sum = 0;
  for (int bit : all) sum |= std::uint32_t{1} << bit;
  return sum;
}
constexpr std::uint32_t v2_leaf1 = bits({0, 9, 13, 19, 20, 23});           // SSE3, SSSE3, CX16, SSE4.1, SSE4.2, POPCNT
constexpr std::uint32_t v3_leaf1 = v2_leaf1 | bits({12, 22, 27, 28, 29});  // FMA, MOVBE, OSXSAVE, AVX, F16C
constexpr std::uint32_t v3_leaf7 = bits({3, 5, 8}), lzcnt = bits({5});     // BMI1, AVX2, BMI2
constexpr std::uint32_t v4_leaf7 = v3_leaf7 | bits({16, 17, 28, 30, 31});  // AVX512 F, DQ, CD, BW, VL
constexpr Features features[] = {{"x86-64-v4", v3_leaf1, v4_leaf7, lzcnt, 0xE6},
                                 {"x86-64-v3", v3_leaf1, v3_leaf7, lzcnt, 0x06},
                                 {"x86-64-v2", v2_leaf1, 0, 0, 0}};

const Features& features_of(const std::string& level) {
  for (const Features& f : features)
    if (level == f.level) return f;
  throw InternalError(__FILE__, __LINE__, "no level " + level);
}

// ptr @NAME.choose(): the table of the highest variant that this processor runs, or null.
std::string choose_function(const ExportedStep& step) {
  const std::string open = "define internal ptr @" + step.name + ".choose() nounwind {\n";
  if (step.variants.front().level == "aarch64") return open + "  ret ptr @" + symbol(step, "variant", 0) + "\n}\n";
  Writer w;
  const auto cpuid = [&](const std::string& leaf, int wanted) {
    const std::string all = w.value(
        "call { i32, i32, i32, i32 } asm sideeffect \"cpuid\", \"={ax},={bx},={cx},={dx},{ax},{cx},~{dirflag},~{fpsr},"
        "~{flags}\"(i32 " +
        leaf + ", i32 0)");
    return w.value("extractvalue { i32, i32, i32, i32 } " + all + ", " + std::to_string(wanted));
  };
  const std::string most = cpuid("0", 0), leaf1 = cpuid("1", 2);
  const std::string has7 = w.value("icmp uge i32 " + most + ", 7");
  // Beyond its highest leaf a processor answers for another one.
  const std::string seven = w.value("select i1 " + has7 + ", i32 7, i32 0");
  const std::string leaf7 = w.value("select i1 " + has7 + ", i32 " + cpuid(seven, 1) + ", i32 0");
  const std::string extended = cpuid(std::to_string(0x80000001U), 2);
  const std::string keeps =
      w.value("icmp ne i32 " + w.value("and i32 " + leaf1 + ", " + std::to_string(1 << 27)) + ", 0");
  w.line("br i1 " + keeps + ", label %read, label %known");
  w.out += "read:\n";
  const std::string pair =
      w.value("call { i32, i32 } asm sideeffect \"xgetbv\", \"={ax},={dx},{cx},~{dirflag},~{fpsr},~{flags}\"(i32 0)");
  const std::string low = w.value("extractvalue { i32, i32 } " + pair + ", 0");
  w.line("br label %known");
  w.out += "known:\n";
  const std::string registers = w.value("phi i32 [ " + low + ", %read ], [ 0, %0 ]");
  std::string chosen = "null";
  for (std::size_t i = step.variants.size(); i-- > 0;) {  // the lowest first, which a higher one replaces
    const Features& f = features_of(step.variants[i].level);
    std::string all = "true";
    const auto require = [&](const std::string& value, std::uint32_t mask) {
      const std::string m = std::to_string(mask);
      const std::string has = w.value("icmp eq i32 " + w.value("and i32 " + value + ", " + m) + ", " + m);
      all = w.value("and i1 " + all + ", " + has);
    };
    require(leaf1, f.leaf1);
    require(leaf7, f.leaf7);
    require(extended, f.extended);
    require(registers, f.registers);
    chosen = w.value("select i1 " + all + ", ptr @" + symbol(step, "variant", i) + ", ptr " + chosen);
  }
  w.line("ret ptr " + chosen);
  return open + w.out + "}\n";
}

// How a function begins that makes no sense on a processor for which there is no variant.
constexpr const char* choose_text = R"(  %variant = call ptr @$N.choose()
  %none = icmp eq ptr %variant, null
  br i1 %none, label %absent, label %present
absent:
  ret i32 -1
present:
)";

// How a function begins that gets $memory to write to and %weights: -2 for what is missing or not aligned.
constexpr const char* check_text = R"(  %memory.bits = ptrtoint ptr $memory to i64
  %weights.bits = ptrtoint ptr %weights to i64
  %all.bits = or i64 %memory.bits, %weights.bits
  %low.bits = and i64 %all.bits, 63
  %misaligned = icmp ne i64 %low.bits, 0
  %missing = icmp eq ptr $memory, null
  %unfit = or i1 %misaligned, %missing
  br i1 %unfit, label %refuse, label %fit
refuse:
  ret i32 -2
fit:
)";

// A variant's table: step, prepare, exported weights.
constexpr const char* functions_text = R"(
define i32 @$N_prepare(ptr %weights, ptr %params) nounwind {
$check_weights$choose  %at = getelementptr i8, ptr %variant, i64 8
  %prepare = load ptr, ptr %at
  call void %prepare(ptr %weights, ptr %params)
  ret i32 0
}

define void @$N_set_weights(ptr %voice, ptr %weights) nounwind {
  %at = getelementptr i8, ptr %voice, i64 $W
  %none = icmp eq ptr %weights, null
  br i1 %none, label %exported, label %given
exported:
  %variant.at = getelementptr i8, ptr %voice, i64 $V
  %variant = load ptr, ptr %variant.at
  %exported.at = getelementptr i8, ptr %variant, i64 16
  %own = load ptr, ptr %exported.at
  store ptr %own, ptr %at
  ret void
given:
  store ptr %weights, ptr %at
  ret void
}

define void @$N_reset(ptr %voice) nounwind {
  %current.at = getelementptr i8, ptr %voice, i64 $C
  %current = load i32, ptr %current.at
  %wide = zext i32 %current to i64
  %bytes = mul i64 %wide, $Z
  %from = add i64 %bytes, $S
  %state = getelementptr i8, ptr %voice, i64 %from
  call void @llvm.memcpy.p0.p0.i64(ptr %state, ptr @$N.initial, i64 $Z, i1 false)
  ret void
}

define i32 @$N_init(ptr %voice, ptr %weights) nounwind {
  %result = tail call i32 @$I(ptr %voice, ptr %weights)
  ret i32 %result
}

define i32 @$I(ptr %voice, ptr %weights) nounwind {
$check_voice$choose  %variant.at = getelementptr i8, ptr %voice, i64 $V
  store ptr %variant, ptr %variant.at
  %current.at = getelementptr i8, ptr %voice, i64 $C
  store i32 0, ptr %current.at
  call void @$N_set_weights(ptr %voice, ptr %weights)
  call void @$N_reset(ptr %voice)
  ret i32 0
}

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
)";

}  // namespace

std::string export_object(const ExportedStep& step) {
  std::string glue = "@$N.never = internal constant i32 0\n@$N.initial = external constant i8\n";
  std::vector<ObjectKernel> kernels;
  std::vector<ObjectData> data = {{step.name + ".initial", step.initial, step.state_offsets, step.state_bytes}};
  for (std::size_t i = 0; i < step.variants.size(); ++i) {
    const Variant& v = step.variants[i];
    const std::string weights = symbol(step, "weights", i);
    for (const char* kernel : {"kernel", "prepare_kernel"})
      glue += "declare void @" + symbol(step, kernel, i) + "(ptr)\n";
    glue += "@" + weights + " = external constant i8\n";
    glue += "@" + symbol(step, "variant", i) + " = internal constant [3 x ptr] [ptr @" + symbol(step, "step", i) +
            ", ptr @" + symbol(step, "prepare", i) + ", ptr @" + weights + "]\n";
    glue += step_function(step, i) + prepare_function(step, i);
    const std::string cpu = v.level == "aarch64" ? "generic" : v.level;
    kernels.push_back({symbol(step, "kernel", i), &v.step.program, cpu});
    kernels.push_back({symbol(step, "prepare_kernel", i), &v.prepare.program, cpu});
    data.push_back({weights, v.prepared, v.offsets, std::max<std::int64_t>(v.prepared_bytes, 64)});
  }
  const VoiceLayout layout(step);
  glue = filled(glue + choose_function(step) + call_step(step) + functions_text,
                {{"$I", tagged_init(step)},
                 {"$check_weights", filled(check_text, {{"$memory", "%weights"}})},
                 {"$check_voice", filled(check_text, {{"$memory", "%voice"}})},
                 {"$choose", choose_text},
                 {"$W", text(layout.weights)},
                 {"$V", text(layout.variant)},
                 {"$C", text(layout.current)},
                 {"$S", text(layout.states)},
                 {"$Z", text(step.state_bytes)},
                 {"$N", step.name}});
  return compile_object(kernels, data, glue);
}

}  // namespace hotloop::deploy
