"""Decoders of models that were changed: the compiled call applies where it knows everything, and reads no freed memory.

Everything here runs in a process of its own, because what could go wrong would end the process.
"""

import subprocess
import sys
import textwrap

BEGINNING = """
import gc, torch
from torch import nn
from delayssm import DS4D, Block, Stack, TokenModel

def make(vocab_size=50, width=16):
    torch.manual_seed(0)
    return TokenModel(vocab_size, Stack(Block(DS4D(width, 8, 64)) for _ in range(2))).eval()

@torch.no_grad()
def agrees(model):
    tokens = torch.tensor([[3, 1, 4, 1, 5]])
    whole = model(tokens)
    for bound in (None, 8):
        decoder = model.decoder(model.init_state(1, bound))
        for t in range(5):
            y = decoder(tokens[:, t])
            assert y.shape == whole[:, t].shape, y.shape
            assert float((y - whole[:, t]).abs().max()) < 1e-5
    if whole.shape[-1] <= model.vocab_size:
        assert len(list(model.generate([1, 2], 5, seed=0))) == 5

def use_memory():
    gc.collect()
    return [torch.full((100, 100), 7.0) for _ in range(1000)]
"""

CASES = {
    "a head with a bias": "m = make(); m.head = nn.Linear(16, 50); agrees(m)",
    "a head of another size": "m = make(50_000, 64); m.head = nn.Linear(64, 9, bias=False); agrees(m)",
    "a far larger vocabulary": "m = make(9, 64); m.head = nn.Linear(64, 300_000, bias=False); agrees(m)",
    "a head of another kind": "m = make(); m.head = nn.Sequential(nn.Linear(16, 50), nn.Tanh()); agrees(m)",
    "a norm without parameters": "m = make(); m.norm = nn.LayerNorm(16, elementwise_affine=False); agrees(m)",
    "a norm without a bias": "m = make(); m.norm = nn.LayerNorm(16, bias=False); agrees(m)",
    "a block's norm without parameters": """
        m = make(); m.backbone.blocks[0].norm = nn.LayerNorm(16, elementwise_affine=False); agrees(m)
    """,
    "a linear without a bias": """
        m = make(); m.backbone.blocks[0].layer.linear = nn.Linear(16, 32, bias=False); agrees(m)
    """,
    "a strided weight": "m = make(); m.head.weight = nn.Parameter(torch.randn(16, 50).T); agrees(m)",
    "a cast between tokens": """
        m = make()
        expected = m.decoder(m.init_state(1, 64))
        decoder = m.decoder(m.init_state(1, 64))
        token = torch.tensor([3])
        first = [expected(token) for _ in range(3)]
        assert torch.equal(decoder(token), first[0])
        m.double()
        kept = use_memory()
        assert torch.equal(decoder(token), first[1])
        del m
        kept += use_memory()
        assert torch.equal(decoder(token), first[2])
    """,
    "a cast between generated tokens": """
        m = make()
        expected = list(m.generate([1, 2], 20, seed=0))
        tokens = m.generate([1, 2], 20, seed=0)
        first = [next(tokens)]
        m.bfloat16()
        kept = use_memory()
        assert first + list(tokens) == expected
    """,
    "a cast before the far part of a response is needed": """
        m = make(width=64)
        decoder = m.decoder(m.init_state(1, 1 << 16))
        token = torch.tensor([3])
        decoder(token)
        m.double()
        try:
            for _ in range(1 << 15):
                decoder(token)
        except ValueError as error:
            assert "parameter has changed" in str(error)
    """,
}

FORK = """
import os
threads = torch.get_num_threads()
m = TokenModel(50, Stack(Block(DS4D(256, 16, 64)) for _ in range(2))).eval()
tokens = torch.randint(0, 50, (64, 60))
with torch.no_grad():
    whole = m(tokens)
decoder = m.decoder(m.init_state(64, 64))
decoder(tokens[:, 0])
child = os.fork()
if child == 0:  # a process whose threads have stayed behind
    with torch.no_grad():
        assert float((m(tokens) - whole).abs().max()) < 1e-5
        assert float((decoder(tokens[:, 1]) - whole[:, 1]).abs().max()) < 1e-5
    os._exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
assert float((decoder(tokens[:, 1]) - whole[:, 1]).abs().max()) < 1e-5
assert torch.get_num_threads() == threads
"""


def _run(program: str) -> None:
    command = [sys.executable, "-c", BEGINNING + program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"exit code {done.returncode} after\n{done.stdout}\n{done.stderr}"


def test_changed_models() -> None:
    parts = (f"print({name!r}, flush=True)\n{textwrap.dedent(case)}" for name, case in CASES.items())
    _run("\n".join(parts))


def test_a_fork() -> None:
    _run(FORK)


def test_an_unknown_backend_in_the_environment() -> None:
    program = "import torch, delayssm; delayssm.DelaySSM(4)(torch.zeros(1, 3, 4))"
    environment = {"DELAYSSM_BACKEND": "nonsense", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False)
    assert "no backend is called 'nonsense' (DELAYSSM_BACKEND); there are numba, triton, eager" in done.stderr
