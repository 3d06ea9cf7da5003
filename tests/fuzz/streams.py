"""Fuzzing of streams: calls in any order, against one pass over all tokens that a stream has seen.

Every stream has a list of its tokens beside it. Whatever is done to a stream, what it returns next is what one pass
returns after these tokens, in float64 and by another backend.
"""

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch
from hypothesis import strategies as st
from torch import Tensor

import delayssm
from delayssm import DS4D, S4D, Block, Stack, TokenModel
from delayssm.system.state import States
from tests.fuzz.outcomes import ACCEPTED, REFUSED, require_clear

V, H = 7, 6
#: Largest difference from one pass, relative to the largest output.
TOLERANCE = 1e-5


@dataclass(frozen=True)
class Live:
    """Some streams and the tokens that each has seen."""

    state: States
    seen: list[list[int]]

    def then(self, state: States, tokens: list[list[int]]) -> "Live":
        """Return the streams after more tokens."""
        return Live(state, [before + more for before, more in zip(self.seen, tokens, strict=True)])


@cache
def _models() -> list[TokenModel]:
    torch.manual_seed(3)
    stacks = [
        [DS4D(H, 4, 20), S4D(H, 4)],
        [DS4D(H, 8, 90), DS4D(H, 4, 300)],
        [S4D(H, 4)],
        [DS4D(H, 4, 5, delays=[1.0, 1.5, 2.0, 3.0, 3.5, 4.0])],
    ]
    return [TokenModel(V, Stack(Block(layer) for layer in layers)).eval() for layers in stacks]


class Play:
    """A model, its streams, and what can be done with them."""

    def __init__(self, data: st.DataObject, tmp: Path) -> None:
        self.data, self.path = data, tmp / "state"
        self.model = copy.deepcopy(data.draw(st.sampled_from(_models()), "model"))
        self.truth = copy.deepcopy(self.model).double()
        self.streams: list[Live] = []
        self.refusals = 0

    def moves(self) -> list[Callable[[], None]]:
        """Return what can be done now."""
        if not self.streams:
            return [self.begin]
        moves = [self.begin, self.chunk, self.chunk, self.tokens, self.decode, self.decode, self.choose, self.reset]
        return [*moves, self.put, self.copy, self.through_a_file, self.misuse, self.cast, self.edit]

    def begin(self) -> None:
        bound = self.data.draw(st.sampled_from([None, 1, 10, 63, 64, 65, 130, 300]), "max_length")
        rows = self.data.draw(st.integers(1, 3), "rows")
        self.streams.append(Live(self.model.init_state(rows, bound), [[] for _ in range(rows)]))

    def chunk(self) -> None:
        live, length = self._take(), self.data.draw(st.sampled_from([0, 1, 2, 5, 31, 64, 70]), "length")
        counts = [self.data.draw(st.integers(0, length), "valid") for _ in live.seen]
        whole = self.data.draw(st.booleans(), "no padding")
        counts = [length] * len(counts) if whole else counts
        rows = [self._some_tokens(count) for count in counts]
        x = torch.tensor([row + [0] * (length - len(row)) for row in rows], dtype=torch.int64)
        self._expect_room(live, counts, lambda: self.model.stream(x, live.state, None if whole else counts), rows)

    def tokens(self) -> None:
        live = self._take()
        rows = [self._some_tokens(1) for _ in live.seen]

        def step() -> tuple[Tensor, States]:
            y, state = self.model.step(torch.tensor(rows)[:, 0], live.state)
            return y.unsqueeze(1), state

        self._expect_room(live, [1] * len(rows), step, rows)

    def decode(self) -> None:
        live = self._take()
        bound = live.state.max_length
        room = 10**9 if bound is None else bound - max(map(len, live.seen))
        decoder = self.model.decoder(live.state)
        count = self.data.draw(st.sampled_from([1, 2, 9, 70]), "tokens")
        rows = [self._some_tokens(min(count, room)) for _ in live.seen]
        outputs = [decoder(x).clone() for x in torch.tensor(rows, dtype=torch.int64).T]
        if outputs:
            self._compare(torch.stack(outputs, 1), live.seen, rows)
        if count > room:
            self._refused(lambda: decoder(torch.zeros(len(rows), dtype=torch.int64)))
        self.streams.append(live.then(decoder.state, rows))

    def choose(self) -> None:
        live = self._look()
        rows = self.data.draw(st.lists(st.integers(0, len(live.seen) - 1), min_size=1, max_size=3), "rows")
        self.streams.append(Live(live.state.select(rows), [live.seen[i] for i in rows]))

    def reset(self) -> None:
        live = self._take()
        rows = self.data.draw(st.lists(st.integers(0, len(live.seen) - 1), max_size=2), "rows")
        live.state.reset(rows)
        self.streams.append(replace(live, seen=[[] if i in rows else seen for i, seen in enumerate(live.seen)]))

    def put(self) -> None:
        live, other = self._take(), self._look() if self.streams else None
        if other is None or other is live:
            return self.streams.append(live)
        row, source = (
            self.data.draw(st.integers(0, len(live.seen) - 1)),
            self.data.draw(st.integers(0, len(other.seen) - 1)),
        )
        seen = [other.seen[source] if i == row else old for i, old in enumerate(live.seen)]
        if live.state.max_length == other.state.max_length:
            live.state.put([row], other.state.select([source]))
            return self.streams.append(replace(live, seen=seen))
        self._refused(lambda: live.state.put([row], other.state.select([source])))
        self.streams.append(live)

    def copy(self) -> None:
        live = self._look()
        way = self.data.draw(st.sampled_from([States.clone, copy.deepcopy, _pickled]), "way")
        self.streams.append(replace(live, state=way(live.state)))

    def through_a_file(self) -> None:
        live = self._look()
        live.state.save(self.path)
        self.streams.append(replace(live, state=self.model.load_state(self.path)))

    def misuse(self) -> None:
        """Do something that must be refused, and leave everything as it was."""
        live = self._look()
        rows = len(live.seen)
        wrong: list[Callable[[], object]] = [
            lambda: self.model.step(torch.zeros(rows + 1, dtype=torch.int64), live.state),
            lambda: self.model.step(torch.full((rows,), V), live.state),
            lambda: self.model.step(torch.zeros(rows), live.state),
            lambda: self.model.stream(torch.zeros(rows, 2, dtype=torch.int64), live.state, [3] * rows),
            lambda: live.state.select([rows]),
            lambda: live.state.reset([-1]),
            lambda: live.state.select([0.5]),
            lambda: self.model.init_state(0),
            lambda: self.model.init_state(1, -1),
            lambda: self.model.load_state(self.path.with_name("absent")),
            lambda: self.model.decoder(live.state)(torch.zeros(rows + 1, dtype=torch.int64)),
            lambda: self.model.decoder(live.state)(torch.full((rows,), -1)),
            lambda: _another(self.model).step(torch.zeros(rows, dtype=torch.int64), live.state),
        ]
        self._refused(self.data.draw(st.sampled_from(wrong), "wrong"))

    def cast(self) -> None:
        """Change the precision, after which the streams of before are refused or right."""
        self.model.to(torch.float32 if self.model.head.weight.dtype == torch.float64 else torch.float64)
        self._after_a_change(compared=True)

    def edit(self) -> None:
        """Change a parameter, after which the streams of before are refused, or go on with what they remember."""
        parameters = dict(self.model.named_parameters())
        name = self.data.draw(st.sampled_from(sorted(parameters)), "parameter")
        with torch.no_grad():
            parameters[name].add_(0.1)
        self.truth = copy.deepcopy(self.model).double()
        self._after_a_change(compared=False)

    def _after_a_change(self, compared: bool) -> None:
        for live in self.streams:
            token = torch.zeros(len(live.seen), dtype=torch.int64)
            if live.state.max_length is not None and max(map(len, live.seen)) >= live.state.max_length:
                continue
            try:
                y, _ = self.model.step(token, live.state)
            except Exception as error:
                require_clear(error)
                self.refusals += 1
                continue
            assert bool(y.isfinite().all())
            if compared:
                self._compare(y.unsqueeze(1), live.seen, [[0]] * len(live.seen))
        self.streams = []

    def _expect_room(
        self, live: Live, counts: list[int], call: Callable[[], tuple[Tensor, States]], rows: list[list[int]]
    ) -> None:
        """Make a call, which must be refused if a stream would become too long."""
        bound = live.state.max_length
        longest = max(len(seen) + count for seen, count in zip(live.seen, counts, strict=True))
        if bound is not None and longest > bound:
            self._refused(call)
            return self.streams.append(live)  # nothing was processed
        y, state = call()
        self._compare(y, live.seen, rows)
        assert state.position.tolist() == [len(seen) + len(row) for seen, row in zip(live.seen, rows, strict=True)]
        self.streams.append(live.then(state, rows))

    def _compare(self, y: Tensor, seen: list[list[int]], rows: list[list[int]]) -> None:
        for output, before, new in zip(y, seen, rows, strict=True):
            if new:
                with delayssm.backend("eager"):
                    expected = self.truth(torch.tensor([before + new]))[0, -len(new) :]
                difference = (output[: len(new)] - expected).abs().max()
                assert float(difference) <= TOLERANCE * float(expected.abs().max()), float(difference)
            assert not output[len(new) :].any()

    def _refused(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:
            require_clear(error)
            self.refusals += 1
        else:
            raise AssertionError("a wrong call was accepted")

    def _take(self) -> Live:
        return self.streams.pop(self._index())

    def _look(self) -> Live:
        return self.streams[self._index()]

    def _index(self) -> int:
        return self.data.draw(st.integers(0, len(self.streams) - 1), "streams")

    def _some_tokens(self, count: int) -> list[int]:
        number = self.data.draw(st.integers(0, 2**16), "tokens")
        return torch.randint(0, V, (count,), generator=torch.Generator().manual_seed(number)).tolist()


@torch.no_grad()
def case(data: st.DataObject, tmp: Path) -> str:
    """Do a dozen things with streams; some of them are wrong, and must be refused."""
    play = Play(data, tmp)
    try:
        for _ in range(data.draw(st.integers(1, 12), "moves")):
            data.draw(st.sampled_from(play.moves()), "move")()
    finally:
        play.path.unlink(missing_ok=True)
    return REFUSED if play.refusals else ACCEPTED


def _pickled(state: States) -> States:
    return pickle.loads(pickle.dumps(state))


def _another(model: TokenModel) -> TokenModel:
    """Return a model that is like another one but for its parameters; a pickled state fits an exact copy, too."""
    other = copy.deepcopy(model)
    next(p for name, p in other.named_parameters() if name.endswith("ssm.D")).data.add_(1)
    return other
