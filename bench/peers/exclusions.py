"""Exclusive self-attention after the heads' outputs: ours, the paper's two lines, and another package's projection."""

from importlib import import_module

import torch
from problems import Peer, Problem, Solver
from torch import Tensor
from torch.nn import functional

from paribus.kernels import compiler
from paribus.kernels.exclude_self import exclude_self


def paribus(problem: Problem) -> Solver:
    return lambda: [exclude_self(problem.inputs["y"], problem.inputs["v"], 1.0)]


def paribus_compiled(problem: Problem) -> Solver:
    compiled = torch.compile(exclude_self, dynamic=False)
    return lambda: [compiled(problem.inputs["y"], problem.inputs["v"], 1.0)]


def two_lines(y: Tensor, v: Tensor) -> Tensor:
    unit = functional.normalize(v, dim=-1)
    return y - (y * unit).sum(-1, keepdim=True) * unit


def plain(problem: Problem) -> Solver:
    return lambda: [two_lines(problem.inputs["y"], problem.inputs["v"])]


def plain_compiled(problem: Problem) -> Solver:
    compiled = torch.compile(two_lines, dynamic=False)
    return lambda: [compiled(problem.inputs["y"], problem.inputs["v"])]


def x_transformers(problem: Problem) -> Solver:
    project = import_module("x_transformers.x_transformers").orthog_project

    def solve() -> list[Tensor]:
        y, v = problem.inputs["y"], problem.inputs["v"]
        by_head = project(y.flatten(2, 3), v.expand_as(y).flatten(2, 3))  # [batch token head head_width]
        return [by_head.view_as(y)]

    return solve


PEERS = (
    Peer("paribus", "one rule for a small v (the row passes unchanged) and no eps; float32 inside", paribus),
    Peer("paribus, operators", "the same without compiled kernels (on a GPU there are none)", paribus, on_gpu=False,
         within=compiler.operators),
    Peer("paribus under torch.compile", "the operators that paribus hands to a compiler", paribus_compiled,
         compiles=True),
    Peer("two lines, eager", "the paper's: |v| is at least 1e-12; in the tensors' own dtype", plain),
    Peer("two lines under torch.compile", "the same, compiled", plain_compiled, compiles=True),
    Peer("x-transformers", "another projection: one coefficient for all tokens, heads and features of a sequence, so "
         "that later tokens reach earlier ones; in float64", x_transformers, "x-transformers", "x_transformers"),
)  # fmt: skip
