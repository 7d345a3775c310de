"""hotloop.torch against PyTorch (in the optional group: it needs torch)."""

import hotloop as hl
import pytest

torch = pytest.importorskip("torch")
import hotloop.torch  # noqa: E402


def pair(**options):
    torch.manual_seed(0)
    theirs = torch.nn.LSTM(3, 4, **options).double()
    ours = hotloop.torch.LSTM(3, 4, **options).double()
    ours.load_state_dict(theirs.state_dict(), strict=True)
    return ours, theirs


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("options", [{}, {"batch_first": True}, {"num_layers": 2, "batch_first": True}])
def test_values_states_and_gradients(options):
    ours, theirs = pair(**options)
    x = torch.randn(5, 6, 3, dtype=torch.double, requires_grad=True)
    batch = x.shape[0] if options.get("batch_first") else x.shape[1]
    hx = tuple(torch.randn(options.get("num_layers", 1), batch, 4, dtype=torch.double) for _ in range(2))
    for state in (None, hx):
        results = []
        for module in (ours, theirs):
            y, (h, c) = module(x, state)
            loss = (y**2).sum() + (h * c).sum()
            gradients = torch.autograd.grad(loss, [x, *module.parameters()])
            results.append([y, h, c, *gradients])
        for a, b in zip(*results, strict=True):
            close(a, b)


def test_unbatched():
    ours, theirs = pair()
    x = torch.randn(5, 3, dtype=torch.double)
    close(ours(x)[0], theirs(x)[0])


def test_double_backward():
    ours, theirs = pair(batch_first=True)
    x = torch.randn(2, 4, 3, dtype=torch.double, requires_grad=True)

    def penalty(module):
        (g,) = torch.autograd.grad((module(x)[0] ** 2).sum(), x, create_graph=True)
        return torch.autograd.grad((g**2).sum(), list(module.parameters()))

    for a, b in zip(penalty(ours), penalty(theirs)):
        close(a, b)


@pytest.mark.filterwarnings("ignore")  # of the other library, of its own inside
def test_vmap_and_forward_mode():
    ours, theirs = pair(batch_first=True)
    params = dict(theirs.named_parameters())
    x = torch.randn(6, 4, 3, dtype=torch.double)

    def per_sample(p, sample):
        return (torch.func.functional_call(ours, p, (sample[None],))[0] ** 2).sum()

    gradients = torch.func.vmap(torch.func.grad(per_sample), in_dims=(None, 0))(params, x)
    for i in range(6):
        wanted = torch.autograd.grad((theirs(x[i][None])[0] ** 2).sum(), list(theirs.parameters()))
        for name, w in zip(params, wanted):
            close(gradients[name][i], w)
    direction = torch.randn_like(x)
    _, tangent = torch.func.jvp(lambda v: ours(v)[0], (x,), (direction,))
    e = 1e-6
    numeric = (theirs(x + e * direction)[0] - theirs(x - e * direction)[0]) / (2 * e)
    torch.testing.assert_close(tangent, numeric.detach(), rtol=1e-6, atol=1e-8)


def test_function_gradcheck():
    f = hotloop.torch.function(lambda a, b: (hl.tanh(a @ b), a.sum() * b.sum()))
    a, b = (torch.randn(s, dtype=torch.double, requires_grad=True) for s in ((2, 3), (3, 2)))
    assert torch.autograd.gradcheck(f, (a, b)) and torch.autograd.gradgradcheck(f, (a, b))


def test_function_of_one_array():
    f = hotloop.torch.function(lambda a, b: hl.tanh(a @ b))
    a, b = (torch.randn(s, dtype=torch.double, requires_grad=True) for s in ((2, 3), (3, 2)))
    torch.testing.assert_close(f(a, b), torch.tanh(a @ b))
    assert torch.autograd.gradcheck(f, (a, b)) and torch.autograd.gradgradcheck(f, (a, b))
    batch = torch.randn(4, 2, 3, dtype=torch.double)
    torch.testing.assert_close(torch.func.vmap(f, (0, None))(batch, b), torch.tanh(batch @ b))
    with pytest.raises(hl.UserError, match=r"\[torch.function\] the function must return an array or a tuple of arrays. Received: dict."):
        hotloop.torch.function(lambda a: {"y": a})(a)


def test_unsupported_options_are_named():
    with pytest.raises(hl.UserError, match="bidirectional, dropout"):
        hotloop.torch.LSTM(3, 4, num_layers=2, bidirectional=True, dropout=0.5)
