"""Fuzzing of files with saved streams, with and without a valid checksum."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from hypothesis import strategies as st
from torch import Tensor

from delayssm import DS4D, S4D, Block, Stack, TokenModel
from delayssm.storage import tensors as tensor_file
from delayssm.system.state import FORMAT
from tests.fuzz.mutations import mutate
from tests.fuzz.outcomes import ACCEPTED, REFUSED, require_clear

V, H = 7, 6
NUMBERS = [0, -1, 1, 63, 64, 65, 2**31, 2**61, 2**62, 2**63 - 1, -(2**63)]
WORDS = ["", "None", "0", "-1", "64", "1e9", str(2**63), "nan", "{}", "[]", "null", "\x00", "x" * 1000]


@cache
def _saved() -> tuple[TokenModel, list[bytes]]:
    """Return a model, and files with its streams: endless and bounded ones."""
    torch.manual_seed(4)
    model = TokenModel(V, Stack([Block(DS4D(H, 4, 20)), Block(S4D(H, 4))])).eval()
    contents = []
    with TemporaryDirectory() as folder, torch.no_grad():
        for bound in (None, 64, 300):
            _, state = model.stream(torch.randint(0, V, (2, 40)), model.init_state(2, bound), [40, 7])
            state.save(Path(folder) / "state")
            contents.append((Path(folder) / "state").read_bytes())
    return model, contents


@torch.no_grad()
def case(data: st.DataObject, tmp: Path) -> str:
    """Load a changed file, and go on with its streams: by a chunk, by a token, and by a decoder."""
    model, contents = _saved()
    path = tmp / "state"
    content = contents[data.draw(st.integers(0, len(contents) - 1), "file")]
    try:
        if data.draw(st.booleans(), "mutate bytes"):
            path.write_bytes(mutate(data, content))
        else:
            path.write_bytes(content)
            _craft(data, path)
        try:
            state = model.load_state(path)
        except Exception as error:
            require_clear(error, path.name)
            return REFUSED
        rows, seen = state.batch_size, state.position
        assert bool((seen >= 0).all()), "a stream cannot have seen fewer than no tokens"
        assert state.max_length is None or bool((seen <= state.max_length).all()), "nor more than it has room for"
        for length in (3, 64):
            if state.max_length is None or int(state.position.max()) + length + 2 <= state.max_length:
                y, state = model.stream(torch.zeros(rows, length, dtype=torch.int64), state)
                assert y.shape == (rows, length, V)
                y, state = model.step(torch.zeros(rows, dtype=torch.int64), state)
                assert model.decoder(state)(torch.zeros(rows, dtype=torch.int64)).shape == (rows, V)
                state = state.current()
        state.select([0]).save(path)
        return ACCEPTED
    finally:
        path.unlink(missing_ok=True)


def _craft(data: st.DataObject, path: Path) -> None:
    """Change tensors and metadata, and write them with a valid checksum."""
    tensors, about = tensor_file.read(path, FORMAT)
    for _ in range(data.draw(st.integers(1, 3), "changes")):
        kind = data.draw(st.sampled_from(["numbers", "positions", "shape", "drop", "add", "kind", "words"]), "change")
        if kind == "words":
            about[data.draw(st.sampled_from([*about, "other"]), "word")] = data.draw(st.sampled_from(WORDS), "value")
            continue
        if kind == "positions":  # all of them, as each contradicts the others
            number = data.draw(st.sampled_from(NUMBERS), "number")
            tensors |= {name: torch.full_like(t, number) for name, t in tensors.items() if t.dtype == torch.int64}
            continue
        name = data.draw(st.sampled_from(sorted(tensors) or [""]), "tensor")
        if kind == "drop":
            tensors.pop(name, None)
        elif kind == "add":
            tensors["extra"] = torch.zeros(data.draw(st.sampled_from([(0,), (2,), (2, 10**6, 0)]), "shape"))
        elif name:
            tensors[name] = _changed(data, tensors[name], kind)
    tensor_file.write(path, FORMAT, tensors, about)


def _changed(data: st.DataObject, t: Tensor, kind: str) -> Tensor:
    if kind == "shape":
        return data.draw(st.sampled_from([t[:1], t[:0], t.flatten(), t.unsqueeze(0), torch.cat([t, t])]), "shape")
    if kind == "kind":
        return t.to(data.draw(st.sampled_from([torch.float64, torch.float16, torch.int32, torch.bool]), "dtype"))
    if t.is_floating_point():
        return torch.full_like(t, data.draw(st.sampled_from([float("nan"), float("inf"), 1e38, 0.0]), "number"))
    number = data.draw(st.sampled_from(NUMBERS), "number")
    return torch.full_like(t, number if t.dtype == torch.int64 else number % 2)
