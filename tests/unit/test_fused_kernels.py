"""Which operators inductor fused into which kernel, as comments in its code tell."""

from __future__ import annotations

from pytest_compileguard.observation import FusedKernel
from pytest_compileguard.report.highlight import module
from pytest_compileguard.trace.event import TraceEvent
from pytest_compileguard.trace.inductor import fused_kernels, kernel_names
from pytest_compileguard.trace.texts import compiler_texts

# In the form of what torch 2.11 to 2.14 generate for a GPU.
TRITON = """\
# AOT ID: ['0_inference']
async_compile = AsyncCompile()

# kernel path: cache/ab/cab.py
# Topologically Sorted Source Nodes: [y, mean], Original ATen: [aten.sin, aten.mul, aten.mean]
# Source node to ATen node mapping:
#   y => mul, sin
# Graph fragment:
#   %sin : Tensor "f32[8][1]cuda:0"[num_users=1] = call_function[target=aten.sin](args = (%x,))
triton_per_fused_mean_mul_sin_0 = async_compile.triton('triton_per_fused_mean_mul_sin_0', '''
import triton
import triton.language as tl
@triton.jit
def triton_per_fused_mean_mul_sin_0(in_ptr0, out_ptr0, XBLOCK : tl.constexpr):
    # Topologically Sorted Source Nodes: [inner], Original ATen: [aten.inner]
    tl.store(out_ptr0, tl.load(in_ptr0))
''', device_str='cuda')

# Unsorted Source Nodes: [], Original ATen: []
triton_poi_fused_1 = async_compile.triton('triton_poi_fused_1', '''
''', device_str='cuda')

class Runner:
    def call(self, args):
        # Topologically Sorted Source Nodes: [y, mean], Original ATen: [aten.sin, aten.mul]
        stream0 = get_raw_stream(0)
        triton_per_fused_mean_mul_sin_0.run(arg0_1, buf0, stream=stream0)
        extern_kernels.bmm(buf0, arg1_1, out=buf1)
        # Topologically Sorted Source Nodes: [z], Original ATen: [aten.mm]
        extern_kernels.mm(buf0, arg1_1, out=buf2)
        # Topologically Sorted Source Nodes: [z], Original ATen: [aten.mm]
        extern_kernels.mm(buf2, arg1_1, out=buf3)
        # Topologically Sorted Source Nodes: [c], Original ATen: [aten.convolution]
        buf4 = extern_kernels.convolution(buf3, arg2_1, stride=(1, 1))
        # Topologically Sorted Source Nodes: [s], Original ATen: [aten.sort]
        buf5 = torch.ops.aten.sort.default(buf4)
"""


def output_code(code: str, call: int = 0, filename: str = "/cache/ab/cab.py") -> TraceEvent:
    metadata = {"inductor_output_code": {"filename": filename}}
    return TraceEvent(
        call=call, metadata=metadata | {"frame_id": 0, "frame_compile_id": 1}, payload=code
    )


def test_each_kernel_is_told_by_the_comment_above_it() -> None:
    found = fused_kernels([output_code(TRITON), output_code(TRITON, 1)])
    assert [(kernel.name, kernel.ops, kernel.nodes) for kernel in found] == [
        (
            "triton_per_fused_mean_mul_sin_0",
            ("aten.sin", "aten.mul", "aten.mean"),
            ("y", "mean"),
        ),
        ("triton_poi_fused_1", (), ()),
        ("extern_kernels.mm", ("aten.mm",), ("z",)),
        ("extern_kernels.convolution", ("aten.convolution",), ("c",)),
        ("torch.ops.aten.sort.default", ("aten.sort",), ("s",)),
    ]
    assert kernel_names([output_code(TRITON)]) == (
        "triton_per_fused_mean_mul_sin_0",
        "triton_poi_fused_1",
    )


def test_very_much_code_is_bounded() -> None:
    many = ", ".join(f"n{at}" for at in range(1000))
    comment = f"# Topologically Sorted Source Nodes: [{many}], Original ATen: [aten.add]\n"
    lines = (f"{comment}triton_{at} = async_compile.triton('', ''''''')" for at in range(1000))
    found = fused_kernels([output_code("\n".join(lines))])
    assert len(found) == 500
    assert {len(kernel.nodes) for kernel in found} == {60}
    assert isinstance(found[0], FusedKernel)


def test_texts_are_told_apart_by_graph_and_part() -> None:
    graph = {"dynamo_output_graph": {}, "frame_id": 0, "frame_compile_id": 1}
    events = [
        TraceEvent(call=0, metadata={**graph, "attempt": 0}, payload="first attempt"),
        output_code(TRITON),
        output_code(TRITON.replace("inference", "backward")),
        output_code("// C++", filename="/cache/ab/cab.cpp"),
        output_code("odd", filename="/cache/ab/../../x.sh"),
        TraceEvent(call=0, metadata={**graph, "attempt": 1}, payload="last attempt"),
        TraceEvent(call=0, metadata={**graph, "frame_compile_id": 2}, payload=""),
    ]
    found = compiler_texts(events)
    assert [(text.kind, text.compile_id, text.part, text.suffix) for text in found] == [
        ("graph", "0/1", "", ".txt"),
        ("code", "0/1", "inference", ".py"),
        ("code", "0/1", "backward", ".py"),
        ("code", "0/1", "", ".cpp"),
        ("code", "0/1", "", ".py"),
    ]
    assert found[0].text == "last attempt"


def test_kernels_are_coloured_in_their_own_language() -> None:
    shown = str(module(TRITON))
    assert '<span class="py-nd">@triton</span>' in shown
    cpp = "x = async_compile.cpp_pybinding(['float*'], r'''\nextern \"C\" void kernel() {}\n''')\n"
    assert '<span class="py-kt">void</span>' in str(module(cpp))
    assert '<span class="py-kt">void</span>' in str(module("void kernel() {}", suffix=".cpp"))


def test_code_is_escaped_whatever_it_holds() -> None:
    hostile = "</script><img src=x onerror=hit>`\x1b[31m\u202e\x00 '''</pre>\n::error::x\n\tx = 1"
    for suffix in (".py", ".cpp", ".txt"):
        for text in (hostile, f"a = async_compile.cpp('''\n{hostile}"):
            shown = str(module(text, suffix=suffix))
            tags = shown.replace("<span ", "").replace("</span>", "")
            assert "<" not in tags
            assert not set("\x1b\u202e\x00") & set(shown)
            assert shown.count("\n") == text.count("\n")
