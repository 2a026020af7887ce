"""Digests of generated code: what means nothing does not move them, and all else does."""

from __future__ import annotations

import re

import pytest

from pytest_compileguard.trace.code_digest import code_digest, graph_codes
from pytest_compileguard.trace.event import TraceEvent

# In the forms of what torch 2.11 to 2.14 generate, for a GPU and for a processor.
TRITON = """\
# AOT ID: ['0_forward']
import torch
async_compile = AsyncCompile()

# kernel path: /cache/torchinductor_me/ab/cab.py
# Topologically Sorted Source Nodes: [y, mean], Original ATen: [aten.sin, aten.mul]
# Graph fragment:
#   %sin : Tensor "f32[8][1]cuda:0"[num_users=1] = call_function[target=aten.sin](args = (%x,))
triton_per_fused_0 = async_compile.triton('triton_per_fused_0', '''
import triton
@triton_heuristics.persistent_reduction(
    size_hints={'x': 64, 'r0_': 16},
    filename=__file__,
    triton_meta={'device': DeviceProperties(type='cuda', index=0, cc=90, warp_size=32)},
    inductor_meta={'backend_hash': 'HASH', 'kernel_name': 'triton_per_fused_0'}
)
@triton.jit
def triton_per_fused_0(in_ptr0, out_ptr0, ks0, XBLOCK : tl.constexpr):
    # inner comment
    tmp0 = tl.load(in_ptr0 + ks0 // 2)
    tl.store(out_ptr0, tmp0 * 2.0)
''', device_str='cuda')

def call(args):
    arg0_1, arg1_1 = args
    s77 = arg0_1
    s27 = arg0_1
    with torch.cuda._DeviceGuard(0):
        torch.cuda.set_device(0)
        buf0 = empty_strided((s77, s27), (s27, 1), device='cuda:0')
        stream0 = get_raw_stream(0)
        triton_per_fused_0.run(arg1_1, buf0, s77, s27, stream=stream0)
    return (buf0, )


def get_args():
    arg0_1 = 32
    return [arg0_1]


def benchmark_compiled_module(args, times=10, repeat=10):
    return print_performance(lambda: call(args), times=times)


if __name__ == "__main__":
    compiled_module_main('None', benchmark_compiled_module)
""".replace("HASH", "0123456789ABCDEF" * 4)
CPP = """\
# AOT ID: ['3_inference']
cpp_fused_0 = async_compile.cpp_pybinding(['const float*', 'const int64_t'], r'''
#include "/cache/torchinductor_me/pi/cpicxudqmdsjh5cm4klbtbrvy2cxwr7whxl3md2zzdjdf3orvfdf.h"
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C" void kernel(const float* in_ptr0, const int64_t ks0)
{
    #pragma omp parallel num_threads(8)
    for(int64_t x0=0L; x0<ks0; x0+=16L) {}
}
''')
def call(args):
    cpp_fused_0(arg1_1, s77)
"""
MEANS_NOTHING = {
    "number of the compilation": ("0_forward", "17_forward"),
    "path in a comment": ("/cache/torchinductor_me/ab/cab.py", "C:\\cache\\other.py"),
    "names of variables": ("[y, mean]", "[renamed, mean]"),
    "comment in a kernel": ("# inner comment", "# model.py:41 in forward"),
    "no comment": ("    # inner comment\n", ""),
    "a digest of versions": ("0123456789ABCDEF" * 4, "F" * 64),
    "first size met": ("arg0_1 = 32", "arg0_1 = 48"),
    "another benchmark": ("print_performance(lambda", "print_more_performance(lambda"),
    "name of a size": ("s77", "s5"),
    "index of the device": (r"re:(_DeviceGuard\(|set_device\(|cuda:|index=|stream)0", r"\g<1>3"),
    "ends of lines": ("\n", "\r\n"),
}
MEANS_SOMETHING = {
    "constant": ("tmp0 * 2.0", "tmp0 * 3.0"),
    "operator": ("tl.load(in_ptr0 + ks0 // 2)", "tl.load(in_ptr0 + ks0 // 4)"),
    "hint of a size": ("'x': 64", "'x': 128"),
    "capability": ("cc=90", "cc=80"),
    "name of a kernel": ("triton_per_fused_0", "triton_red_fused_0"),
    "another size": ("(s77, s27), (s27, 1)", "(s77, s27), (s77, 1)"),
    "sizes that are one": ("s27", "s77"),
    "one device of two": ("device='cuda:0'", "device='cuda:1'"),
    "line less": ("        torch.cuda.set_device(0)\n", ""),
    "order": ("run(arg1_1, buf0", "run(buf0, arg1_1"),
}


def replaced(code: str, old: str, new: str) -> str:
    """Replace in the code; after ``re:`` stands a pattern."""
    pattern = old.removeprefix("re:") if old.startswith("re:") else re.escape(old)
    changed, count = re.subn(pattern, new if old.startswith("re:") else lambda _: new, code)
    assert count, "the case changes nothing"
    return changed


@pytest.mark.parametrize("case", MEANS_NOTHING)
def test_what_means_nothing_does_not_move_a_digest(case: str) -> None:
    changed = replaced(TRITON, *MEANS_NOTHING[case])
    if case == "index of the device":
        changed = changed.replace("get_raw_stream(0)", "get_raw_stream(3)")
    assert code_digest(changed) == code_digest(TRITON)


@pytest.mark.parametrize("case", MEANS_SOMETHING)
def test_what_means_something_moves_a_digest(case: str) -> None:
    assert code_digest(replaced(TRITON, *MEANS_SOMETHING[case])) != code_digest(TRITON)


def test_directives_of_cpp_count_and_where_headers_lie_does_not() -> None:
    base = code_digest(CPP)
    assert code_digest(CPP.replace("/cache/torchinductor_me/pi", "/home/b/cache/x")) == base
    assert code_digest(CPP.replace("cpicx", "cpicy")) == base
    for old, new in (
        ("num_threads(8)", "num_threads(4)"),
        ("cpp_prefix.h", "other.h"),
        ("    #pragma omp parallel num_threads(8)\n", ""),
        ("x0+=16L", "x0+=8L"),
    ):
        assert code_digest(replaced(CPP, old, new)) != base, new


def test_a_benchmark_within_a_kernel_does_not_hide_what_follows() -> None:
    """``config.benchmark_kernel`` puts functions of the same names into the source of kernels."""
    kernel = "'''\ndef get_args():\n    x = 1\ndef benchmark_compiled_module():\n    pass\n'''\n"
    one, other = (f"k = triton('k', {kernel})\nz = {value}\n" for value in (1, 2))
    assert code_digest(one) != code_digest(other)
    tail = "\ndef benchmark_compiled_module(args):\n    pass\n"
    assert code_digest(one + tail) != code_digest(other + tail)


def test_a_line_that_begins_with_a_floor_division_is_no_comment() -> None:
    assert code_digest("x = (a\n    // 2)") != code_digest("x = (a\n    )")


def test_types_of_assembly_are_no_names_of_sizes() -> None:
    assert code_digest("asm('mov.s32 x')") != code_digest("asm('mov.s16 x')")


def event(code: str, frame: int, number: int = 0) -> TraceEvent:
    about = {"frame_id": frame, "frame_compile_id": number}
    return TraceEvent(call=0, metadata={"inductor_output_code": {}, **about}, payload=code)


def test_graphs_are_numbered_as_they_were_compiled_and_parts_are_apart() -> None:
    backward = TRITON.replace("0_forward", "0_backward")
    events = [event(TRITON, 1), event(CPP, 0), event("x = 1", 0, 1), event(backward, 1)]
    found = graph_codes(events, ("0/0", "1/0", "2/0"))
    assert [(code.key, code.compile_id) for code in found] == [
        ("1 inference", "0/0"),
        ("2 backward", "1/0"),
        ("2 forward", "1/0"),
    ], "0/1 failed, and of 2/0 nothing is known"
    assert found[2].digest == code_digest(TRITON)


def test_all_codes_of_one_graph_count() -> None:
    """Some settings split a graph, and each piece is generated by itself."""
    (one,) = graph_codes([event("x = 1", 0), event("y = 1", 0)], ("0/0",))
    (other,) = graph_codes([event("x = 1", 0), event("y = 2", 0)], ("0/0",))
    (less,) = graph_codes([event("x = 1", 0)], ("0/0",))
    (twice,) = graph_codes([event("x = 1", 0), event("x = 1", 0)], ("0/0",))
    assert len({code.digest for code in (one, other, less, twice)}) == 4
