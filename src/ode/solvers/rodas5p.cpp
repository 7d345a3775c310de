#include <algorithm>

#include "hotloop/ops.h"
#include "ode/implicit.h"
#include "ode/registry.h"
#include "ode/rosenbrock.h"

namespace hotloop::ode {
namespace {

// Steinebach 2023, in the form that multiplies by no Jacobian (Hairer and Wanner 1996, IV.7):
//   (I / (gamma h) - J) u_i = f(t + alpha_i h, y + sum_j a_ij u_j) + sum_j c_ij u_j / h + gamma_i h df/dt
//   y1 = y + sum_j a_8j u_j + u_8, of which u_8 is the error estimate.
constexpr int stages = 8;
constexpr double gamma = 0.21193756319429014;
constexpr double alpha[stages] = {
    0, 0.6358126895828704, 0.4095798393397535, 0.9769306725060716, 0.4288403609558664, 1, 1, 1};
constexpr double gamma_sum[stages] = {
    0.21193756319429014, -0.42387512638858027, -0.3384627126235924, 1.8046452872882734, 2.325825639765069, 0, 0, 0};
constexpr double a[stages][stages - 1] = {
    {},
    {3.0},
    {2.849394379747939, 0.45842242204463923},
    {-6.954028509809101, 2.489845061869568, -10.358996098473584},
    {2.8029986275628964, 0.5072464736228206, -0.3988312541770524, -0.04721187230404641},
    {-7.502846399306121, 2.561846144803919, -11.627539656261098, -0.18268767659942256, 0.030198172008377946},
    {-7.502846399306121, 2.561846144803919, -11.627539656261098, -0.18268767659942256, 0.030198172008377946, 1},
    {-7.502846399306121, 2.561846144803919, -11.627539656261098, -0.18268767659942256, 0.030198172008377946, 1, 1}};
constexpr double c[stages][stages - 1] = {
    {},
    {-14.155112264123755},
    {-17.97296035885952, -2.859693295451294},
    {147.12150275711716, -1.41221402718213, 71.68940251302358},
    {165.43517024871676, -0.4592823456491126, 42.90938336958603, -5.961986721573306},
    {24.854864614690072, -3.0009227002832186, 47.4931110020768, 5.5814197821558125, -0.6610691825249471},
    {30.91273214028599, -3.1208243349937974, 77.79954646070892, 34.28646028294783, -19.097331116725623,
     -28.087943162872662},
    {37.80277123390563, -3.2571969029072276, 112.26918849496327, 66.9347231244047, -40.06618937091002,
     -54.66780262877968, -9.48861652309627}};
// y(t + x h) = (1 - x) y + x (y1 + (1 - x) (d_1 + x (d_2 + x d_3))), d = dense u.
constexpr double dense[3][stages] = {
    {25.948786856663858, -2.5579724845846235, 10.433815404888879, -2.3679251022685204, 0.524948541321073,
     1.1241088310450404, 0.4272876194431874, -0.17202221070155493},
    {-9.91568850695171, -0.9689944594115154, 3.0438037242978453, -24.495224566215796, 20.176138334709044,
     15.98066361424651, -6.789040303419874, -6.710236069923372},
    {11.419903575922262, 2.8879645146136994, 72.92137995996029, 80.12511834622643, -52.072871366152654,
     -59.78993625266729, -0.15582684282751913, 4.883087185713722}};

void check() {
  using Row = std::vector<double>;
  const auto square = [](const double(&rows)[stages][stages - 1]) {
    std::vector<Row> all(stages, Row(stages));
    for (std::size_t i = 0; i < stages; ++i) std::copy(rows[i], rows[i] + stages - 1, all[i].begin());
    return all;
  };
  Rosenbrock method{.name = "rodas5p", .a = square(a), .order = 5, .embedded_order = 4, .dense_order = 4};
  method.b = method.b_hat = method.a.back();
  method.b.back() = 1;
  // Degree by degree, as step() has them.
  for (int j = 0; j < 4; ++j) {
    Row row = j == 0 ? method.b : Row(stages);
    for (std::size_t i = 0; i < stages; ++i) row[i] += (j < 3 ? dense[j][i] : 0) - (j > 0 ? dense[j - 1][i] : 0);
    method.dense.push_back(row);
  }
  Rosenbrock::from_transformed(method, square(c), gamma)
      .check({alpha, alpha + stages}, {gamma_sum, gamma_sum + stages}, 1e-13);
}

class Rodas5PRule : public StepRule {
 public:
  std::string name() const override { return "rodas5p"; }
  int order() const override { return 5; }
  int error_order() const override { return 5; }
  bool is_implicit() const override { return true; }
  Leaves start(const VectorField&, Value, const Leaves&) const override { return {}; }

  StepResult step(const VectorField& field, const StepInput& in) const override {
    const FlatField f(field, in.y0);
    const Value y0 = f.pack(in.y0), dt = in.t1 - in.t0, h = cast(dt, y0.dtype());
    const Value jacobian = f.jacobian(in.t0, y0), in_time = f.time_derivative(in.t0, y0);
    const Value matrix = identity(f.size(), y0.dtype()) / (gamma * h) - jacobian;
    const Factors factors = factorize(matrix);
    std::vector<Value> u;
    const auto weighted = [&](const double* weights, Value from) {
      for (std::size_t j = 0; j < u.size(); ++j)
        if (weights[j] != 0) from = from + (weights[j] == 1 ? u[j] : weights[j] * u[j]);
      return from;
    };
    Value y;
    for (int i = 0; i < stages; ++i) {
      y = weighted(a[i], y0);
      const Value t = alpha[i] == 0 ? in.t0 : alpha[i] == 1 ? in.t1 : in.t0 + alpha[i] * dt;
      Value rhs = f(t, y);
      Value past;
      for (int j = 0; j < i; ++j) {
        const Value term = c[i][j] * u[static_cast<std::size_t>(j)];
        past = past.defined() ? past + term : term;
      }
      if (past.defined()) rhs = rhs + past / h;
      if (gamma_sum[i] != 0) rhs = rhs + gamma_sum[i] * h * in_time;
      u.push_back(solve_with(matrix, factors, rhs));
    }
    const Value y1 = y + u.back();
    Value d[3];
    for (int i = 0; i < 3; ++i) d[i] = weighted(dense[i], zeros_like(y0));
    StepResult result;
    result.y1 = f.unpack(y1);
    result.error = f.unpack(u.back());
    result.interpolant = {f.unpack(y1 - y0 + d[0]), f.unpack(d[1] - d[0]), f.unpack(d[2] - d[1]), f.unpack(-d[2])};
    return result;
  }
};

}  // namespace

Rodas5P::Rodas5P() : Solver(Rodas5PRule()) { check(); }

std::vector<SolverDef> solvers_rodas5p() {
  return {{"rodas5p", "Rosenbrock-Wanner, order 5(4), stiffly accurate", {}, [](const Config&) -> Solver {
             return Rodas5P();
           }}};
}

}  // namespace hotloop::ode
