"""Reading captured graphs."""

from __future__ import annotations

import pytest

from pytest_compileguard.trace.graph_text import convolves, device_type, dtypes

GRAPH = """\
class GraphModule(torch.nn.Module):
    def forward(self, L_self_modules_converter_weight_: "f32[4, 4][4, 1]cpu", L_x_: "f32[2, 4][4, 1]cpu"):
        l_x_ = L_x_
        # File: /home/conv2d/conv.py:9 in forward, code: converged = torch.conv2d(x)
        converged: "bf16[2, 4][4, 1]cpu" = torch._C._nn.linear(l_x_, L_self_modules_converter_weight_)
        return (converged,)
"""  # noqa: E501  # as torch prints it


def test_names_and_comments_are_no_convolution() -> None:
    assert not convolves([GRAPH])


@pytest.mark.parametrize("call", ("torch.conv2d", "torch._C._nn.conv_transpose1d", "torch.conv3d"))
def test_a_call_is_one(call: str) -> None:
    assert convolves([GRAPH, f'        y: "f32[1][1]cuda:0" = {call}(l_x_, w);  l_x_ = w = None\n'])


def test_dtypes_and_devices_are_those_of_tensors() -> None:
    on_gpu = '        y: "f16[s0, 4][4, 1]cuda:1" = torch.relu(x)\n'
    assert dtypes([GRAPH]) == {"f32", "bf16"}
    assert dtypes([on_gpu]) == {"f16"}
    assert device_type([GRAPH]) == "cpu"
    assert device_type([GRAPH, on_gpu]) == "cuda"
    assert device_type([]) == "cpu"
