"""What bench/gpu/rivals.py measures of PyTorch."""

import time
from functools import partial

import numpy as np
from rival_measure import (
    FIELD,
    JACOBIAN_BATCHES,
    JACOBIAN_WIDTHS,
    LEARNING_RATE,
    LN_SHAPE,
    LORENZ,
    LSTM_SHAPES,
    PRECISIONS,
    Job,
    append,
    label,
    lorenz_inputs,
    lstm_inputs,
    mlp_inputs,
    size,
    size_of_gradient,
)


def torch_jobs(options, only_compiled):
    import torch

    device = torch.device("cpu" if options.cpu else "cuda")
    if not options.cpu and not torch.cuda.is_available():
        raise RuntimeError("PyTorch finds no CUDA device")
    info = {"torch": torch.__version__, "threads": torch.get_num_threads()}
    if not options.cpu:
        info |= {"device": torch.cuda.get_device_name(), "cuda": torch.version.cuda}
        info["cudnn"] = torch.backends.cudnn.version()
    append(options, {"info": info})
    by_default = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)

    def choose(precision):
        of_matmul, of_cudnn = by_default if precision == "default" else (False, False)
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = of_matmul, of_cudnn

    def wait(_):
        if not options.cpu:
            torch.cuda.synchronize()

    def spanned(call):
        def span(k):
            if options.cpu:
                start = time.perf_counter()
                for _ in range(k):
                    call()
                return 1e3 * (time.perf_counter() - start)
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            for _ in range(k):
                call()
            last.record()
            torch.cuda.synchronize()
            return first.elapsed_time(last)

        return span

    def on_device(array):
        return torch.from_numpy(np.array(array)).to(device)

    def graphed(function, warm=3):
        """Its launches, recorded once. What it returns is overwritten by each replay."""
        if options.cpu:
            raise RuntimeError("CUDA graphs need CUDA")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(warm):
                function()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = function()

        def replay():
            graph.replay()
            return result

        return replay

    def finished(call, *checks, with_span=True):
        return call, wait, spanned(call) if with_span else None, list(checks)

    def to_numpy(tensor):
        return tensor.detach().cpu().numpy()

    class LSTM(torch.nn.Module):
        def __init__(self, p):
            super().__init__()
            i, h = p["w"].shape[0], p["u"].shape[0]
            layers = [p, *p["above"]]
            self.lstm, self.out = torch.nn.LSTM(i, h, len(layers)), torch.nn.Linear(h, 1)
            self.to(device)
            names = [f"{name}_l{k}" for k in range(len(layers)) for name in ("weight_ih", "weight_hh", "bias_ih")]
            self.places = [getattr(self.lstm, name) for name in names] + [self.out.weight, self.out.bias]
            values = [layer[k] for layer in layers for k in "wub"] + [p["wo"], p["bo"]]
            self.values = [np.ascontiguousarray(v.T) for v in values]
            with torch.no_grad():
                for k in range(len(layers)):
                    getattr(self.lstm, f"bias_hh_l{k}").zero_()
            self.load()

        def load(self):
            with torch.no_grad():
                for place, value in zip(self.places, self.values):
                    place.copy_(torch.from_numpy(value))

        def recurrent(self):
            return to_numpy(self.lstm.weight_hh_l0)

        def forward(self, x):
            return self.out(self.lstm(x)[0][-1])

    class LayerNormLSTM(torch.nn.Module):
        def __init__(self, p, compiled):
            super().__init__()
            self.p = torch.nn.ParameterDict({k: torch.nn.Parameter(on_device(v)) for k, v in p.items()})
            self.values = p
            self.step = torch.compile(self.cell, dynamic=False) if compiled else self.cell

        def load(self):
            with torch.no_grad():
                for k, value in self.values.items():
                    self.p[k].copy_(torch.from_numpy(value))

        def recurrent(self):
            return to_numpy(self.p["u"])

        @staticmethod
        def cell(wx, h, c, u, gain, bias, gain_c, bias_c):
            size = (h.shape[-1],)
            z = (wx + h @ u).view(-1, 4, *size)
            i, f, g, o = (torch.nn.functional.layer_norm(z, size) * gain + bias).unbind(1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            return torch.sigmoid(o) * torch.tanh(torch.nn.functional.layer_norm(c, size, gain_c, bias_c)), c

        def forward(self, x):
            p = self.p
            h = c = x.new_zeros(x.shape[1], p["u"].shape[0])
            for wx in (x @ p["w"]).unbind(0):
                h, c = self.step(wx, h, c, p["u"], p["gain"], p["b"], p["gain_c"], p["bias_c"])
            return h @ p["wo"] + p["bo"]

    def training(model, x, y):
        parameters = [p for n, p in model.named_parameters() if "bias_hh" not in n]

        def step():
            loss = torch.nn.functional.mse_loss(model(x), y)
            gradients = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                torch._foreach_add_(parameters, gradients, alpha=-LEARNING_RATE)
            return loss.detach()

        return step

    def train(make, inputs, graph, arrays, precision):
        choose(precision)
        p, x, y = inputs
        model = make(p)
        x_there, y_there = on_device(x), on_device(y)
        step = training(model, x_there, y_there)
        if graph:
            step = graphed(step)
        model.load()
        before = model.recurrent().copy()
        loss = size(to_numpy(step()))
        checks = loss, size_of_gradient(before, model.recurrent())
        if arrays == "device":
            return finished(step, *checks)

        def call():
            if arrays == "host all":
                model.load()
            x_there.copy_(torch.from_numpy(x))
            y_there.copy_(torch.from_numpy(y))
            loss = to_numpy(step())
            return loss, [to_numpy(v) for v in model.places] if arrays == "host all" else None

        return finished(call, *checks, with_span=False)

    def infer(inputs, graph, arrays, precision):
        choose(precision)
        p, x, _ = inputs
        model = LSTM(p).eval()
        x_there = on_device(x)

        def run():
            with torch.inference_mode():
                return model(x_there)

        if graph:
            run = graphed(run)
        check = size(to_numpy(run()))
        if arrays == "device":
            return finished(run, check)

        def call():
            with torch.inference_mode():
                x_there.copy_(torch.from_numpy(x))
            return to_numpy(run())

        return finished(call, check, with_span=False)

    def mlp(p, x):
        for k, (w, b) in enumerate(p):
            x = x @ w + b
            x = torch.tanh(x) if k + 1 < len(p) else x
        return x

    def jacobian(mode, batch, graph, precision):
        choose(precision)
        p, x = mlp_inputs(JACOBIAN_WIDTHS, batch)
        p, x = [(on_device(w), on_device(b)) for w, b in p], on_device(x)
        one = torch.func.vmap(mode(partial(mlp, p)))
        call = (lambda: one(x)) if not graph else graphed(lambda: one(x))
        return finished(call, size(to_numpy(call())))

    def lorenz_step(s):
        dt = LORENZ["dt"]

        def field(s):
            x, y, z = s.unbind(0)
            return torch.stack((10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z))

        k1 = field(s)
        k2 = field(s + dt / 2 * k1)
        k3 = field(s + dt / 2 * k2)
        k4 = field(s + dt * k3)
        return s + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    def lorenz(compiled, graph, precision):
        choose(precision)
        step = torch.compile(lorenz_step, dynamic=False) if compiled else lorenz_step
        start = on_device(lorenz_inputs())
        state = start.clone()
        in_graph = 100  # of the steps: recording all of them takes longer than it saves

        def several(k):
            s = state
            for _ in range(k):
                s = step(s)
            state.copy_(s)

        with torch.no_grad():
            replay = graphed(partial(several, in_graph), warm=1) if graph else None

        def call():
            with torch.no_grad():
                state.copy_(start)
                if replay is None:
                    several(LORENZ["steps"])
                else:
                    for _ in range(LORENZ["steps"] // in_graph):
                        replay()
            return state

        return finished(call, size(to_numpy(call())))

    def neural_ode(graph, precision):
        choose(precision)
        p, y0 = mlp_inputs(FIELD["widths"], FIELD["batch"])
        p, y0, dt = [(on_device(w), on_device(b)) for w, b in p], on_device(y0), FIELD["dt"]
        leaves = [v.requires_grad_() for pair in p for v in pair]

        def gradient():
            y = y0
            for _ in range(FIELD["steps"]):
                k1 = mlp(p, y)
                k2 = mlp(p, y + dt / 2 * k1)
                k3 = mlp(p, y + dt / 2 * k2)
                k4 = mlp(p, y + dt * k3)
                y = y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            return torch.autograd.grad((y**2).mean(), leaves)

        call = graphed(gradient) if graph else gradient
        return finished(call, size(to_numpy(call()[0])))

    # Only cuDNN's precision differs by default, unless somebody chose otherwise.
    of_matmul = PRECISIONS if by_default[0] else ("f32",)
    ways = [("", False)] if options.cpu else [("", False), (", graph", True)]
    inputs_normed, task_normed = lstm_inputs(LN_SHAPE, normed=True), f"LayerNorm-LSTM training {label(LN_SHAPE)}"
    jobs = []
    if only_compiled:
        for suffix, graph in ways:
            jobs.append(Job("Lorenz", "compiled step" + suffix, partial(lorenz, True, graph), precisions=("f32",)))
            prepare = partial(train, partial(LayerNormLSTM, compiled=True), inputs_normed, graph, "device")
            jobs.append(Job(task_normed, "compiled cell" + suffix, prepare, precisions=of_matmul))
        return jobs
    for shape in LSTM_SHAPES:
        inputs = lstm_inputs(shape)
        for suffix, graph in ways:
            way = "nn.LSTM" + suffix
            for arrays in ("device", "host data", "host all"):
                prepare, precisions = (
                    partial(train, LSTM, inputs, graph, arrays),
                    PRECISIONS if arrays == "device" else ("f32",),
                )
                jobs.append(Job(f"LSTM training {label(shape)}", way, prepare, arrays, precisions))
            for arrays in ("device", "host"):
                prepare, precisions = (
                    partial(infer, inputs, graph, arrays),
                    PRECISIONS if arrays == "device" else ("f32",),
                )
                jobs.append(Job(f"LSTM inference {label(shape)}", way, prepare, arrays, precisions))
    for suffix, graph in ways:
        prepare = partial(train, partial(LayerNormLSTM, compiled=False), inputs_normed, graph, "device")
        jobs.append(Job(task_normed, "eager" + suffix, prepare, precisions=of_matmul))
        for batch in JACOBIAN_BATCHES:
            for name in ("jacrev", "jacfwd"):
                prepare = partial(jacobian, getattr(torch.func, name), batch, graph)
                way = f"vmap({name}){suffix}"
                jobs.append(Job(f"Jacobian batch {batch}", way, prepare, precisions=of_matmul, rank=int(graph)))
        jobs.append(Job("Lorenz", "eager" + suffix, partial(lorenz, False, graph), precisions=("f32",), rank=1))
        jobs.append(
            Job("neural ODE gradient", "eager" + suffix, partial(neural_ode, graph), precisions=of_matmul, rank=1)
        )
    return jobs
