#include "hotloop/profile.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "core/cancel.h"
#include "core/denormals.h"
#include "hotloop/error.h"
#include "runtime/executable.h"
#include "runtime/text_lines.h"

namespace hotloop {
namespace {

using Clock = std::chrono::steady_clock;

// One call's memory, and calls of any engine in it.
class Runner {
 public:
  Runner(const Executable::Impl& program, std::span<const Array> inputs)
      : program_(program), rows_(program.check(inputs)), call_(program.take_call()) {
    for (std::size_t i = 0; i < inputs.size(); ++i) call_->inputs[i] = inputs[i].memory().get();
    for (std::size_t i = 0; i < call_->outputs.size(); ++i) {
      const ValueType type = program.output_type(i, rows_);
      results_.emplace_back(type.dtype, type.shape);
      call_->outputs[i] = results_.back().raw();
    }
  }

  double time_us(const runtime::Engine& engine) {
    const CancelWatch watch;
    program_.fill_in_place(call_->inputs.data(), call_->outputs.data(), rows_);
    const auto start = Clock::now();
    engine.run(call_->inputs.data(), call_->outputs.data(), rows_);
    const double us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    watch.finish();
    return us;
  }

 private:
  const Executable::Impl& program_;
  std::int64_t rows_;
  std::unique_ptr<Executable::Impl::Call> call_;
  std::vector<Array> results_;
};

std::string time_text(double us) {
  if (us >= 1e6) return runtime::fixed(us * 1e-6, "s");
  if (us >= 1e3) return runtime::fixed(us * 1e-3, "ms");
  return us < 0.1 ? runtime::fixed(us * 1e3, "ns") : runtime::fixed(us, "us");
}

std::string runs_text(double runs) {
  constexpr double most_written_out = 1e6;
  return runtime::scaled(runs, "", runs < most_written_out ? most_written_out : 1000);
}

std::string rate_text(const StatementTime& s) {
  if (s.flops > 0) return runtime::scaled(s.flops / (s.time_us * 1e-6), "flop/s");
  if (s.elements > 0) return runtime::fixed(s.time_us * 1e3 / s.elements, "ns each");
  return "";
}

}  // namespace

Profile profile(const Executable& executable, std::span<const Array> inputs, double seconds) {
  const Executable::Impl& program = executable.impl();
  const CompileOptions& options = program.options;
  if (!(seconds >= 0) || std::isinf(seconds))
    throw UserError("profile", "seconds must not be negative", std::to_string(seconds));
  if (options.backend != "llvm" || options.dispatch != "fused")
    throw UserError("profile", "the program must be one kernel of the llvm backend",
                    options.dispatch == "fused" ? "backend " + options.backend : "dispatch " + options.dispatch,
                    options.backend == "cuda" ? "device cpu; HOTLOOP_CUDA_PROFILE=1 in the environment for this one"
                                              : "backend llvm, dispatch fused");
  Runner runner(program, inputs);
  const runtime::Engine::Clocked clocked = program.engine->clocked();
  const std::vector<ClockedStatement>& statements = clocked.kernel->clocked;
  const auto clocks = [&] { return std::vector(clocked.kernel->clocks, clocked.kernel->clocks + statements.size()); };
  Profile result;
  {
    const DenormalWatch watch;
    runner.time_us(*clocked.without);
    result.met_denormals = watch.met() && !options.flush_denormals.value_or(false);
  }
  runner.time_us(*clocked.with_clocks);

  constexpr std::int64_t fewest_calls = 3;
  const std::vector<StatementClock> before = clocks();
  result.program = program.program.name;
  for (const auto start = Clock::now();
       result.num_calls < fewest_calls || std::chrono::duration<double>(Clock::now() - start).count() < seconds;
       ++result.num_calls) {
    result.without_clocks_us += runner.time_us(*clocked.without);
    result.call_us += runner.time_us(*clocked.with_clocks);
  }
  const std::vector<StatementClock> after = clocks();
  const auto calls = static_cast<double>(result.num_calls);
  result.without_clocks_us /= calls;
  result.call_us /= calls;

  double all_ticks = 0;
  for (std::size_t i = 0; i < statements.size(); ++i)
    all_ticks += static_cast<double>(after[i].ticks - before[i].ticks);
  for (std::size_t i = 0; i < statements.size(); ++i) {
    const double ticks = static_cast<double>(after[i].ticks - before[i].ticks),
                 points = static_cast<double>(after[i].points - before[i].points) / calls;
    StatementTime time{.statement = statements[i].text};
    time.time_us = all_ticks > 0 ? result.call_us * ticks / all_ticks : 0;
    time.runs = static_cast<double>(after[i].runs - before[i].runs) / calls;
    (statements[i].multiplies ? time.flops : time.elements) = statements[i].multiplies ? 2 * points : points;
    result.statements.push_back(std::move(time));
  }
  std::ranges::stable_sort(result.statements, std::ranges::greater(), &StatementTime::time_us);
  return result;
}

std::string Profile::str() const {
  constexpr double smallest_share = 0.005;
  std::string out;
  runtime::append_line(out, "profile",
                       program + ": " + time_text(call_us) + " a call by one worker, " + time_text(without_clocks_us) +
                           " without the clocks, means of " + std::to_string(num_calls) + " calls each");
  out += "  share       time    runs           rate  statement\n";
  const auto line = [&](double us, const std::string& runs, const std::string& rate, const std::string& text) {
    char numbers[64];
    std::snprintf(numbers, sizeof numbers, "%5.1f %% %10s %7s %14s ", us / call_us * 100, time_text(us).c_str(),
                  runs.c_str(), rate.c_str());
    runtime::append_line(out, numbers, text, std::string(numbers).size() + 1);
  };
  double others_us = 0;
  std::size_t num_others = 0;
  for (const StatementTime& s : statements) {
    if (s.time_us < smallest_share * call_us) {
      others_us += s.time_us;
      ++num_others;
    } else {
      line(s.time_us, runs_text(s.runs), rate_text(s), s.statement);
    }
  }
  if (num_others > 0) line(others_us, "", "", std::to_string(num_others) + (num_others == 1 ? " other" : " others"));
  if (met_denormals)
    runtime::append_line(out, "denormals",
                         "numbers below the normal range came up, with which some processors compute many times more "
                         "slowly; flush_denormals counts them as 0");
  return out;
}

}  // namespace hotloop
