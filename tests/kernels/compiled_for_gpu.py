"""A script: one JSON line for each kernel in Triton, compiled for a GPU that need not be there."""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import triton
from triton.backends import nvidia
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from paribus.kernels import depth_read_triton, exclude_self_triton, gpu

CAPABILITY = 90
WIDTH, SOURCES, QUERIES = 1024, 9, 2
HEAD_WIDTH = 128


def compiled(kernel: Any, constants: dict[str, Any], types: dict[str, str]) -> dict[str, Any]:
    """`types` of the arguments that are not float32 tensors; addresses, strides and widths are multiples of 16."""
    warps = constants.pop("num_warps")
    signature = {name: "constexpr" if name in constants else types.get(name, "*fp32") for name in kernel.arg_names}
    aligned = {
        (place,): [["tt.divisibility", 16]]
        for place, (name, kind) in enumerate(signature.items())
        if kind.startswith("*") or name == "width" or kind == "i64"
    }
    source = ASTSource(kernel, signature=signature, constexprs=constants, attrs=aligned)
    options = {"num_warps": warps, **gpu.OPTIONS}
    made = triton.compile(source, target=GPUTarget("cuda", CAPABILITY, 32), options=options)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        tool = Path(nvidia.__file__).parent / "bin" / "cuobjdump"
        told = subprocess.run([tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True)
    return {
        "kernel": kernel.__name__ + (" with norm" if signature.get("inverse_mix") == "*fp32" else ""),
        "threads": 32 * warps,
        "spilled_bytes": int(re.findall(r"STACK:(\d+)", told.stdout)[0]),
        "wide_loads": made.asm["ptx"].count("ld.global.v4.b32"),
        "rounds_to_nearest": "cvt.rn.bf16" in made.asm["ptx"],
    }


def main() -> None:
    of_read = {"table": "*i64", "tokens": "i32", "width": "i32", "sources": "i32", "norm_eps": "fp32"}
    alone = dict.fromkeys(("inverse_mix", "norm_gain"))
    part = {"PART": depth_read_triton.PART}
    forward = depth_read_triton.forward_shape(SOURCES, QUERIES, WIDTH)
    backward, normed = (depth_read_triton.backward_shape(SOURCES, QUERIES, WIDTH, normed=n) for n in (False, True))
    names = exclude_self_triton._backward.arg_names
    strides = [name for name in names if name.endswith(("_batch", "_time", "_head", "_member"))]
    of_exclusion = {
        **dict.fromkeys(strides, "i64"),
        **dict.fromkeys(("tokens", "time", "kv_heads", "group", "width"), "i32"),
        **dict.fromkeys(("strength", "relative_eps", "smallest", "features"), "fp32"),
        **dict.fromkeys(("y", "v", "z", "grad_z", "grad_y", "grad_v"), "*bf16"),
    }
    rows = {"ROWS": exclude_self_triton.TILE // HEAD_WIDTH, "COLUMNS": HEAD_WIDTH, "num_warps": 4}
    for kernel, constants, types in (
        (
            depth_read_triton._sum_forward,
            depth_read_triton.sum_shape(WIDTH) | part,
            {"eps": "fp32", "delta": "*bf16", **of_read},
        ),
        (depth_read_triton._read_forward, forward | part | alone, of_read),
        (depth_read_triton._read_backward, backward | part | alone | {"grad_norm_gain": None}, of_read),
        (depth_read_triton._read_forward, forward | part, of_read),
        (depth_read_triton._read_backward, normed | part, of_read),
        (exclude_self_triton._forward, dict(rows), of_exclusion),
        (exclude_self_triton._backward, dict(rows), of_exclusion),
    ):
        sys.stdout.write(json.dumps(compiled(kernel, constants, types)) + "\n")


if __name__ == "__main__":
    main()
