"""Layouts of Keras' weights, without Keras."""

import numpy as np
from hotloop._from_keras import _Conversion, _from_cudnn


def test_cudnn_layout(rng):
    """The transformation that Keras 2 applies when it loads weights of CuDNNLSTM into LSTM: each gate's kernel transposed and then read
    in Fortran order, each recurrent kernel transposed."""
    kernel, recurrent, bias = rng.normal(size=(3, 8)), rng.normal(size=(2, 8)), rng.normal(size=16)
    wanted = np.concatenate([k.T.reshape(k.shape, order="F") for k in np.split(kernel, 4, 1)], 1)
    ours = _from_cudnn([kernel, recurrent, bias], 4)
    np.testing.assert_array_equal(ours[0], wanted)
    np.testing.assert_array_equal(ours[1], np.concatenate([r.T for r in np.split(recurrent, 4, 1)], 1))
    params = _Conversion._lstm_params({}, ours)
    np.testing.assert_array_equal(params["bias_ih_l0"], bias[:8])
    np.testing.assert_array_equal(params["bias_hh_l0"], bias[8:])


def test_gru_gates_change_places(rng):
    kernel, recurrent, bias = rng.normal(size=(3, 6)), rng.normal(size=(2, 6)), rng.normal(size=(2, 6))
    params = _Conversion._gru_params({"reset_after": True}, [kernel, recurrent, bias])
    z, r, h = np.split(kernel, 3, 1)
    np.testing.assert_array_equal(params["weight_ih_l0"], np.concatenate([r, z, h], 1).T)
    assert params["bias_hh_l0"].shape == (6,)
    assert "bias_hh_l0" not in _Conversion._gru_params({}, [kernel, recurrent, bias[0]])
