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


def test_what_cannot_be_converted_is_named_at_once():
    module = torch.nn.Sequential(torch.nn.Conv1d(1, 1, 1), torch.nn.LSTM(3, 4, proj_size=2), torch.nn.GELU(approximate="tanh"))
    with pytest.raises(hl.UserError, match=r"0: Conv1d; 1: LSTM with proj_size .*; 2: GELU with GELU\(approximate='tanh'\)"):
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
