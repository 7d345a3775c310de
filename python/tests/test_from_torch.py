"""PyTorch modules in and out, against PyTorch (in the optional group: it needs torch)."""

import hotloop as hl
import numpy as np
import pytest

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("make", [
    lambda: torch.nn.LSTM(3, 5, batch_first=True), lambda: torch.nn.LSTM(3, 5, num_layers=2, batch_first=True),
    lambda: torch.nn.GRU(3, 5, num_layers=2, batch_first=True), lambda: torch.nn.RNN(3, 5, batch_first=True),
    lambda: torch.nn.LSTM(3, 5, bias=False, batch_first=True),
    lambda: torch.nn.LSTM(3, 5, num_layers=2, bidirectional=True, batch_first=True),
    lambda: torch.nn.GRU(3, 5, bidirectional=True, batch_first=True),
])  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_recurrent(make, dtype):
    torch.manual_seed(0)
    module = make().to(dtype)
    x = torch.randn(4, 7, 3, dtype=dtype)
    model, params = hl.from_torch(module)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    np.testing.assert_allclose(model(params, x.numpy()), module(x)[0].detach(), rtol=tolerance, atol=tolerance)


def test_sequential_round_trip(tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.LayerNorm(4), torch.nn.GELU(), torch.nn.Linear(4, 2, bias=False))
    x = torch.randn(5, 3)
    model, params = hl.from_torch(module)
    np.testing.assert_allclose(model(params, x), module(x).detach(), rtol=1e-5, atol=1e-6)
    back = hl.to_torch(model, params)
    np.testing.assert_allclose(back(x).detach(), module(x).detach(), rtol=1e-5, atol=1e-6)
    assert back.state_dict().keys() == module.state_dict().keys()


@pytest.mark.parametrize("layers", [
    lambda: (hl.nn.LSTM(3, 6, layers=2), hl.nn.Last(), hl.nn.Linear(6, 2)), lambda: (hl.nn.GRU(3, 6), hl.nn.RNN(6, 4), hl.nn.Linear(4, 1)),
])  # fmt: skip
def test_a_checkpoint_loads_strictly_into_the_twin(layers, tmp_path):
    model = hl.nn.Sequential(*layers())
    params = model.init(3)
    hl.save(tmp_path / "m.safetensors", params)
    twin = hl.to_torch(model, model.init(4))
    state = {k: torch.from_numpy(np.array(v)) for k, v in _flat(hl.load(tmp_path / "m.safetensors")).items()}
    twin.load_state_dict(state, strict=True)
    x = torch.randn(4, 9, 3)
    np.testing.assert_allclose(twin(x).detach(), model(params, x), rtol=1e-4, atol=1e-5)


def test_embeddings_go_both_ways():
    module = torch.nn.Sequential(torch.nn.Embedding(7, 3, padding_idx=0), torch.nn.Dropout(0.2), torch.nn.Linear(3, 2)).eval()
    x = torch.tensor([[0, 3, 6], [1, 1, 2]])
    model, params = hl.from_torch(module)
    np.testing.assert_allclose(model(params, x), module(x).detach(), rtol=1e-5, atol=1e-6)
    back = hl.to_torch(model, params).eval()
    np.testing.assert_allclose(back(x).detach(), module(x).detach(), rtol=1e-5, atol=1e-6)
    assert back[0].padding_idx == 0


def _flat(tree, prefix=""):
    if not isinstance(tree, dict):
        return {prefix: tree}
    return {k: v for name, child in tree.items() for k, v in _flat(child, f"{prefix}.{name}" if prefix else name).items()}


# Rows are made by torch.randn of the shape; sequences are (batch, time, features) here, and with `turned` (batch, features, time) in PyTorch.
@pytest.mark.parametrize("make, shape, turned", [
    (lambda nn: [nn.Conv1d(3, 4, 1)], (2, 7, 3), True),
    (lambda nn: [nn.Conv1d(4, 6, 1, groups=2, bias=False, padding="same"), nn.ReLU(), nn.BatchNorm1d(6)], (2, 7, 4), True),
    (lambda nn: [nn.ZeroPad1d((4, 0)), nn.Conv1d(3, 4, 3, dilation=2), nn.PReLU(4), nn.ConstantPad1d((1, 0), 0.0), nn.Conv1d(4, 2, 2)], (2, 9, 3), True),
    (lambda nn: [nn.BatchNorm1d(3, eps=1e-3, momentum=0.3)], (5, 3), False),
    (lambda nn: [nn.BatchNorm1d(3)], (5, 7, 3), True),
    (lambda nn: [nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2), nn.LogSoftmax(-1)], (5, 3), False),
    (lambda nn: [nn.Linear(3, 4), nn.Flatten(), nn.Linear(28, 5), nn.PReLU(5), nn.Softmax(dim=-1)], (2, 7, 3), False),
    (lambda nn: [nn.Linear(3, 4), nn.PReLU(), nn.Linear(4, 3), nn.PReLU(1), nn.Flatten(), nn.Linear(21, 4), nn.LogSoftmax(dim=1)], (2, 7, 3), False),
    (lambda nn: [nn.Linear(3, 4), nn.PReLU(), nn.Linear(4, 5), nn.Softmax(dim=1)], (6, 3), False),
    (lambda nn: [nn.Conv1d(3, 4, 1), nn.PReLU(), nn.Softmax(dim=1)], (2, 9, 3), True),
    (lambda nn: [nn.ELU(0.7), nn.SELU(), nn.SiLU(), nn.Mish(), nn.LeakyReLU(0.2), nn.Softsign(), nn.Softplus(), nn.GELU(approximate="tanh")], (4, 9), False),
    (lambda nn: [nn.Hardtanh(), nn.Hardsigmoid(), nn.ReLU6(), nn.GELU(), nn.Sigmoid(), nn.Tanh()], (4, 9), False),
])  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_layers_there_and_back(make, shape, turned, dtype):
    torch.manual_seed(0)
    module = torch.nn.Sequential(*make(torch.nn)).to(dtype)
    x, tolerance = torch.randn(shape, dtype=dtype), 1e-5 if dtype == torch.float32 else 1e-12
    their = (lambda x: module(x.transpose(1, 2)).transpose(1, 2)) if turned else module
    module.train()
    for _ in range(2):  # means that are not those at the start
        their(torch.randn(shape, dtype=dtype) + 1)
    model, params, buffers = hl.from_torch(module, buffers=True)
    assert _flat(buffers).keys() == {name for name, _ in module.named_buffers()}

    wanted = their(x).detach()
    trained, moved = model(params, x, buffers=buffers, training=True)
    np.testing.assert_allclose(trained, wanted, rtol=tolerance, atol=tolerance)
    for name, value in module.named_buffers():
        np.testing.assert_allclose(_flat(moved)[name], value, rtol=tolerance, atol=tolerance)

    module.eval()
    wanted = their(x).detach()
    np.testing.assert_allclose(model(params, x, buffers=moved)[0], wanted, rtol=tolerance, atol=tolerance)
    twin = hl.to_torch(model, params, moved).eval()
    np.testing.assert_allclose(twin(x).detach(), wanted, rtol=tolerance, atol=tolerance)
    state = twin.state_dict()
    assert state.keys() == module.state_dict().keys()
    for name, value in module.state_dict().items():
        assert state[name].dtype == value.dtype
        np.testing.assert_allclose(state[name], value, rtol=tolerance, atol=tolerance)

    again, same, held = hl.from_torch(twin, buffers=True)
    np.testing.assert_array_equal(again(same, x, buffers=held)[0], model(params, x, buffers=moved)[0])


@pytest.mark.parametrize("make", [
    lambda: torch.nn.LSTMCell(3, 5), lambda: torch.nn.GRUCell(3, 5), lambda: torch.nn.RNNCell(3, 5, nonlinearity="relu"), lambda: torch.nn.LSTMCell(3, 5, bias=False),
])  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_cell_becomes_the_layer_that_is_stepped(make, dtype):
    torch.manual_seed(0)
    cell = make().to(dtype)
    model, params = hl.from_torch(cell)
    bound, state, theirs, tolerance = model.bind(params), None, None, 1e-5 if dtype == torch.float32 else 1e-12
    for x in torch.randn(4, 2, 3, dtype=dtype):
        y, state = bound.step(state, x)
        theirs = cell(x, theirs)
        np.testing.assert_allclose(y, (theirs[0] if isinstance(theirs, tuple) else theirs).detach(), rtol=tolerance, atol=tolerance)
    if cell.bias:
        back = hl.to_torch(model, params).state_dict()
        assert {name.removesuffix("_l0"): value.tolist() for name, value in back.items()} == {name: value.tolist() for name, value in cell.state_dict().items()}


def test_a_layer_that_stands_twice_is_applied_twice():
    module = torch.nn.Sequential(act := torch.nn.Tanh(), torch.nn.Linear(3, 3), act)
    x = torch.randn(2, 3)
    model, params = hl.from_torch(module)
    np.testing.assert_allclose(model(params, x), module(x).detach(), rtol=1e-5, atol=1e-6)
    with pytest.raises(hl.UserError, match="1: Linear, which is there twice and would have two weights"):
        hl.from_torch(torch.nn.Sequential(both := torch.nn.Linear(3, 3), both))


class Conv1d(torch.nn.Conv1d):
    """One's own, which is called as PyTorch's and does something else."""

    def forward(self, x):
        return -super().forward(x)


@pytest.mark.parametrize("make, message", [
    (lambda nn: [nn.Conv1d(1, 1, 3)], r"0: Conv1d with kernel_size=3, dilation=1 and padding=0, where hl.nn.Conv1d is causal: torch.nn.ZeroPad1d\(\(2, 0\)\) before one"),
    (lambda nn: [nn.Conv1d(1, 1, 3, dilation=2, padding="same")], r"0: Conv1d with kernel_size=3, dilation=2 and padding='same', .*ZeroPad1d\(\(4, 0\)\)"),
    (lambda nn: [nn.ZeroPad1d((3, 0)), nn.Conv1d(1, 1, 3)], r"1: Conv1d with kernel_size=3"),
    (lambda nn: [nn.ZeroPad1d((2, 0)), nn.Conv1d(1, 1, 3, padding=1)], r"1: Conv1d with kernel_size=3, dilation=1 and padding=1"),
    (lambda nn: [nn.ZeroPad1d((1, 1)), nn.Conv1d(1, 1, 3)], r"0: ZeroPad1d; 1: Conv1d with"),
    (lambda nn: [nn.ConstantPad1d((2, 0), 1.0), nn.Conv1d(1, 1, 3)], r"0: ConstantPad1d; 1: Conv1d with"),
    (lambda nn: [nn.ZeroPad1d((2, 0)), nn.Tanh()], r"0: ZeroPad1d"),
    (lambda nn: [nn.Conv1d(1, 1, 1, stride=2)], r"0: Conv1d with stride=2"),
    (lambda nn: [Conv1d(1, 1, 1)], r"Received: 0: Conv1d\. Try"),
    (lambda nn: [nn.Conv1d(3, 4, 1), nn.Flatten(), nn.Linear(28, 2)], r"0: Conv1d, whose sequences are \(batch, features, time\), in one Sequential with Flatten, Linear, which"),
    (lambda nn: [nn.Embedding(5, 3), nn.BatchNorm1d(3)], r"1: BatchNorm1d after Embedding, whose second axis is time"),
    (lambda nn: [nn.BatchNorm1d(3, momentum=None), nn.BatchNorm1d(3, affine=False)], r"0: BatchNorm1d with momentum=None; 1: BatchNorm1d with affine=False"),
    (lambda nn: [nn.BatchNorm1d(3, track_running_stats=False)], r"0: BatchNorm1d with track_running_stats=False"),
    (lambda nn: [nn.BatchNorm1d(3)], r"must be converted with them. Received: 0: BatchNorm1d, and buffers=False. Try: model, params, buffers = hl.from_torch\(module, buffers=True\)"),
    (lambda nn: [nn.Softmax(dim=2), nn.LogSoftmax(dim=0)], r"0: Softmax with dim=2; dim=-1, the features, is wanted; 1: LogSoftmax with dim=0"),
    (lambda nn: [nn.LSTM(3, 4), nn.Softmax(dim=1)], r"1: Softmax after LSTM, whose second axis is time"),
    (lambda nn: [nn.Flatten(0)], r"0: Flatten with start_dim=0, end_dim=-1"),
    (lambda nn: [nn.Embedding(5, 3, max_norm=1.0), nn.Embedding(5, 3, scale_grad_by_freq=True)], r"0: Embedding with max_norm; 1: Embedding with scale_grad_by_freq"),
    (lambda nn: [nn.Softplus(beta=2), nn.Hardtanh(0, 1)], r"0: Softplus with beta=2.*; 1: Hardtanh with min_val=0, max_val=1"),
    (lambda nn: [nn.Sequential(nn.Tanh(), nn.Conv2d(1, 1, 1))], r"0\.1: Conv2d"),
])  # fmt: skip
def test_what_is_not_the_same_is_refused(make, message):
    with pytest.raises(hl.UserError, match=message):
        hl.from_torch(torch.nn.Sequential(*make(torch.nn)))


@pytest.mark.parametrize("model, message", [
    (hl.nn.Sequential(hl.nn.Linear(3, 3), hl.nn.BatchNorm(3)), "1: BatchNorm, whose running means are wanted as buffers"),
    (hl.nn.Dropout(0.1, same_over_time=True), "the model: Dropout with same_over_time"), (hl.nn.MeanPool(), "the model: MeanPool"),
    (hl.nn.GRU(3, 4, reset="before"), "the model: GRU with {'reset': 'before'}"),
])  # fmt: skip
def test_what_has_no_twin_is_named(model, message):
    with pytest.raises(hl.UserError, match=message):
        hl.to_torch(model, model.init())
    if "BatchNorm" in message:
        twin = hl.to_torch(model, model.init(), model.init_buffers())
        assert int(twin.state_dict()["1.num_batches_tracked"]) == 0


def test_what_cannot_be_converted_is_named_at_once():
    module = torch.nn.Sequential(torch.nn.Conv2d(1, 1, 1), torch.nn.LSTM(3, 4, proj_size=2), torch.nn.Hardtanh(0, 1))
    with pytest.raises(hl.UserError, match=r"0: Conv2d; 1: LSTM with proj_size .*; 2: Hardtanh with min_val=0, max_val=1"):
        hl.from_torch(module)
    with pytest.raises(hl.UserError, match="the model: Recurrent"):
        hl.to_torch(hl.nn.Recurrent(hl.nn.Cell()), {})


def test_tensors_go_in_and_out_without_a_copy():
    t = torch.arange(6.0).reshape(2, 3)
    assert hl.asarray(t)._address == t.data_ptr()
    x = hl.asarray(t) * 2
    assert np.array_equal(torch.from_dlpack(x).numpy(), t.numpy() * 2)
    assert np.array_equal(hl.jit(lambda v: v + 1)(t), t.numpy() + 1)
    with pytest.raises(hl.UserError, match=r"x.detach\(\)"):
        hl.asarray(torch.ones(2, requires_grad=True))
    with pytest.raises(hl.UserError, match="bfloat16"):
        hl.asarray(torch.ones(2, dtype=torch.bfloat16))


def test_a_module_of_ones_own_takes_the_state_dict_of_its_twin():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.heads = torch.nn.LSTM(3, 5, 2, batch_first=True), torch.nn.ModuleList([torch.nn.Linear(5, 4), torch.nn.Linear(4, 1)])

        def forward(self, x):
            return self.heads[1](torch.tanh(self.heads[0](self.lstm(x)[0][:, -1])))

    class Ours(hl.nn.Module):
        def __init__(self):
            self.lstm, self.heads = hl.nn.LSTM(3, 5, layers=2), [hl.nn.Linear(5, 4), hl.nn.Linear(4, 1)]

        def apply(self, params, x):
            h = hl.tanh(self.heads[0](params["heads"]["0"], self.lstm(params["lstm"], x)[:, -1]))
            return self.heads[1](params["heads"]["1"], h)

    torch.manual_seed(0)
    module, model, x = Net(), Ours(), torch.randn(4, 7, 3)
    params = hl.load(module.state_dict(), like=model.init())
    np.testing.assert_allclose(model(params, x), module(x).detach(), rtol=1e-5, atol=1e-6)
    drawn = model.init(0, generator="torch")
    for name, value in module.state_dict().items():
        at = drawn
        for part in name.split("."):
            at = at[part]
        np.testing.assert_array_equal(at, value)
