// RTNeural's outputs, in double precision: usage: record MODEL.json <inputs, a line a step
#include <RTNeural/RTNeural.h>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <vector>

int main(int, char** argv) {
  std::ifstream file(argv[1]);
  const auto model = RTNeural::json_parser::parseJson<double>(file);
  model->reset();
  std::vector<double> x(static_cast<std::size_t>(model->layers.front()->in_size));
  while (true) {
    for (double& v : x)
      if (!(std::cin >> v)) return 0;
    model->forward(x.data());
    for (int i = 0; i < model->layers.back()->out_size; ++i)
      std::printf("%s%.12g", i ? "," : "", model->getOutputs()[i]);
    std::printf("\n");
  }
}
