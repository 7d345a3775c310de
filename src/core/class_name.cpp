#include "core/class_name.h"

#include <functional>
#include <map>

namespace hotloop {
namespace {

// Those that are not written as words are.
const std::map<std::string, std::string, std::less<>> others = {
    {"Adamw", "AdamW"}, {"Auc", "AUC"},     {"Bce", "BCE"},           {"Ctc", "CTC"},     {"Elu", "ELU"},
    {"Ema", "EMA"},     {"Gelu", "GELU"},   {"GeluTanh", "GELUTanh"}, {"Gru", "GRU"},     {"LeakyRelu", "LeakyReLU"},
    {"Lstm", "LSTM"},   {"Mae", "MAE"},     {"Mse", "MSE"},           {"Nadam", "NAdam"}, {"Nll", "NLL"},
    {"Ode", "ODE"},     {"Prelu", "PReLU"}, {"Radam", "RAdam"},       {"Relu", "ReLU"},   {"Relu6", "ReLU6"},
    {"Rk4", "RK4"},     {"Rmse", "RMSE"},   {"Rmsprop", "RMSprop"},   {"Rnn", "RNN"},     {"Rodas5p", "Rodas5P"},
    {"Selu", "SELU"},   {"Sgd", "SGD"},     {"Silu", "SiLU"},         {"Tcn", "TCN"}};

}  // namespace

std::string class_name(std::string_view name) {
  std::string camel;
  bool begins = true;
  for (const char c : name) {
    if (c != '_') camel += begins && c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    begins = c == '_';
  }
  const auto other = others.find(camel);
  return other == others.end() ? camel : other->second;
}

}  // namespace hotloop
