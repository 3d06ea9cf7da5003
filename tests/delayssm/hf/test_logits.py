"""One pass, any chunking, a cache and padding on either side give the same logits and losses."""

import copy

import pytest
import torch
from torch import Tensor

from delayssm.hf import DS4DCache, DS4DForCausalLM
from tests.delayssm.hf.models import STACKS, V, every_model, make, padded
from tests.support.numerics import relative_rms

ROWS = [torch.randint(0, V, (n,), generator=torch.Generator().manual_seed(n)) for n in (11, 4, 17)]
LENGTH = 20
both_sides = pytest.mark.parametrize("side", ["left", "right"])
both_caches = pytest.mark.parametrize("max_length", [None, 40])


def _tokens(rows: int = 2, length: int = 30) -> Tensor:
    return torch.randint(0, V, (rows, length))


@every_model
def test_the_library_computes_everything(kind: str) -> None:
    model, x = make(kind), _tokens()
    assert torch.equal(model(x).logits, model.model(x))
    assert model(x).past_key_values is None


@every_model
@both_caches
@pytest.mark.parametrize("sizes", [[29, 1], [10, *[1] * 20], [1] * 30, [7, 1, 13, 1, 8]], ids=str)
@torch.no_grad()
def test_chunks_and_tokens_equal_the_whole(kind: str, max_length: int | None, sizes: list[int]) -> None:
    model, x, cache, parts = make(kind), _tokens(), DS4DCache(max_length), []
    for chunk in x.split(sizes, dim=1):
        output = model(chunk, past_key_values=cache)
        assert output.past_key_values is cache
        parts.append(output.logits)
    assert cache.get_seq_length() == 30
    assert relative_rms(torch.cat(parts, 1), model(x).logits) <= 1e-6


@every_model
@both_sides
def test_padding_changes_nothing(kind: str, side: str) -> None:
    model, batch = make(kind), padded(ROWS, side, LENGTH)
    logits = model(**batch).logits
    for i, row in enumerate(ROWS):
        valid = batch["attention_mask"][i].bool()
        assert not logits[i, ~valid].any()
        assert relative_rms(logits[i, valid], model(row[None]).logits[0]) <= 1e-6


@every_model
@both_sides
@both_caches
@torch.no_grad()
def test_padded_chunks_and_tokens_equal_each_row_alone(kind: str, side: str, max_length: int | None) -> None:
    """Masks grow as in `generate`, with the columns of earlier chunks, or cover one chunk."""
    model, cache, batch = make(kind), DS4DCache(max_length), padded(ROWS, side, LENGTH)
    later = _tokens(3, 5)
    first = model(**batch, past_key_values=cache, logits_to_keep=1).logits
    mask = batch["attention_mask"]
    answers = [first]
    for t in range(5):
        mask = torch.cat([mask, torch.ones(3, 1, dtype=torch.int64)], 1)
        shown = mask if t % 2 else mask[:, -1:]
        answers.append(model(later[:, t : t + 1], attention_mask=shown, past_key_values=cache).logits)
    for i, row in enumerate(ROWS):
        alone = model(torch.cat([row, later[i]])[None]).logits[0, len(row) - 1 :]
        assert relative_rms(torch.cat(answers, 1)[i], alone) <= 1e-6


@both_sides
def test_only_the_last_tokens(side: str) -> None:
    """They are those of the row, not of its padding."""
    model, batch = make(), padded(ROWS, side, LENGTH)
    everything = model(**batch).logits
    for cache in (None, DS4DCache()):
        last = model(**batch, past_key_values=cache, logits_to_keep=3).logits
        assert last.shape == (3, 3, V)
        for i, row in enumerate(ROWS):
            end = LENGTH if side == "left" else len(row)
            assert relative_rms(last[i], everything[i, end - 3 : end]) <= 1e-6
    assert model(ROWS[0][None], logits_to_keep=100).logits.shape == (1, 11, V)
    some = model(ROWS[0][None], logits_to_keep=torch.tensor([2, 5])).logits
    assert relative_rms(some, model(ROWS[0][None]).logits[:, [2, 5]]) <= 1e-6


@both_sides
def test_the_loss_is_that_of_the_rows(side: str) -> None:
    """It is the mean over all tokens but the first of each row, whatever stands in the padding."""
    model, batch = make(), padded(ROWS, side, LENGTH)
    expected, count = torch.tensor(0.0), 0
    for row in ROWS:
        logits = model(row[None]).logits[0, :-1]
        expected = expected + torch.nn.functional.cross_entropy(logits, row[1:], reduction="sum")
        count += len(row) - 1
    for filler in (-100, 3):
        labels = torch.where(batch["attention_mask"].bool(), batch["input_ids"], filler)
        assert model(**batch, labels=labels).loss.item() == pytest.approx(expected.item() / count, rel=1e-6)
        divided = model(**batch, labels=labels, num_items_in_batch=torch.tensor(7)).loss
        assert divided.item() == pytest.approx(expected.item() / 7, rel=1e-6)
    labels[:, 5:] = -100
    assert model(**batch, labels=labels).loss.isfinite()
    plain = model(ROWS[0][None], labels=ROWS[0][None])
    assert torch.equal(plain.loss, torch.nn.functional.cross_entropy(plain.logits[0, :-1], ROWS[0][1:]))


def test_vectors_in_place_of_tokens() -> None:
    model, batch = make(), padded(ROWS, "left")
    vectors = model.get_input_embeddings()(batch["input_ids"].clamp(min=0))
    vectors[batch["attention_mask"] == 0] = float("nan")
    y = model(inputs_embeds=vectors, attention_mask=batch["attention_mask"]).logits
    assert torch.equal(y, model(**batch).logits)


def test_padding_on_both_sides() -> None:
    model, x = make(), _tokens(2, 9)
    mask = torch.tensor([[0, 0, 1, 1, 1, 1, 0, 0, 0], [1] * 9])
    logits = model(x, attention_mask=mask).logits
    assert relative_rms(logits[0, 2:6], model(x[:1, 2:6]).logits[0]) <= 1e-6


def test_gradients_flow_through_a_cache() -> None:
    model, x, cache = make(), _tokens(), DS4DCache()
    parts = [model(chunk, past_key_values=cache).logits for chunk in x.split([12, 1, 17], 1)]
    torch.cat(parts, 1).square().sum().backward()
    pieces = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    model(x).logits.square().sum().backward()
    for name, p in model.named_parameters():
        assert relative_rms(pieces[name], p.grad) <= 1e-5, name


@torch.no_grad()
def test_a_cache_can_be_copied_reset_and_rearranged() -> None:
    model, x = make(), _tokens(2, 10)
    cache = model(x, use_cache=True).past_key_values
    model(x[:, :1], past_key_values=cache)
    copied = copy.deepcopy(cache)
    a, b = (model(x[:, 1:2], past_key_values=c).logits for c in (cache, copied))
    assert torch.equal(a, b)
    assert (cache.batch_size, cache.get_seq_length(), cache.get_max_length()) == (2, 12, -1)
    copied.batch_repeat_interleave(2)
    copied.batch_select_indices(torch.tensor([3, 0]))
    swapped = model(x[[1, 0], 2:3], past_key_values=copied).logits
    assert relative_rms(swapped[[1, 0]], model(x[:, 2:3], past_key_values=cache).logits) <= 1e-6
    cache.reset()
    assert (cache.batch_size, cache.get_seq_length()) == (-1, 0)
    assert torch.equal(model(x[:1], past_key_values=cache).logits, model(x[:1], use_cache=True).logits)
    assert not cache.is_croppable
    assert not cache.is_compileable
    with pytest.raises(NotImplementedError, match="cannot be turned back"):
        cache.crop(1)


@torch.no_grad()
def test_a_cache_notices_changes_of_the_model() -> None:
    """Single tokens go through a decoder, which is made for the parameters as they are."""
    model, x = make(), _tokens(2, 10)
    cache = DS4DCache()
    for chunk in x[:, :4].split([3, 1], 1):
        model(chunk, past_key_values=cache)
    other = copy.deepcopy(cache)
    model.model.backbone.blocks[0].layer.ssm.C.mul_(2)
    by_step, _ = model.model.step(x[:, 4], other.state)
    assert relative_rms(model(x[:, 4:5], past_key_values=cache).logits[:, 0], by_step) <= 1e-6
    bounded = DS4DCache(20)
    for chunk in x[:, :4].split([3, 1], 1):
        model(chunk, past_key_values=bounded)
    model.model.backbone.blocks[0].layer.ssm.C.mul_(2)
    with pytest.raises(ValueError, match="a parameter has changed"):
        model(x[:, 4:5], past_key_values=bounded)


def test_a_tuple_where_one_is_wanted() -> None:
    model, x = make(), _tokens()
    loss, logits = model(x, labels=x, return_dict=False)
    assert torch.equal(loss, model(x, labels=x).loss)
    assert torch.equal(logits, model(x).logits)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ValueError, "either input_ids or inputs_embeds"),
        ({"input_ids": 0, "inputs_embeds": 0}, ValueError, "either input_ids or inputs_embeds"),
        ({"input_ids": 0, "attention_mask": [[1, 0, 1], [1, 1, 1]]}, ValueError, "row 0 of .* has padding between"),
        ({"input_ids": 0, "attention_mask": [[1, 1], [1, 1]]}, ValueError, "2 rows and 3 columns, not shape"),
        ({"input_ids": 0, "attention_mask": [[1, 1, 1]]}, ValueError, "2 rows and 3 columns"),
        ({"input_ids": 0, "attention_mask": [[0, 0, -1], [0, 0, 0]]}, ValueError, "1 for tokens and 0 for padding"),
        ({"input_ids": 0, "logits_to_keep": -1}, ValueError, "logits_to_keep must be a whole number"),
        ({"input_ids": 0, "logits_to_keep": torch.tensor([3])}, ValueError, "positions must lie between 0 and 2"),
        ({"input_ids": 0, "past_key_values": object()}, TypeError, "must be a DS4DCache, not object"),
        ({"input_ids": 0, "position_ids": None}, TypeError, "unexpected keyword argument 'position_ids'"),
        ({"input_ids": V}, ValueError, "token 20 is not a number from 0 to 19"),
        ({"input_ids": 0.5}, TypeError, "tokens must be whole numbers"),
    ],
)  # fmt: skip
def test_wrong_inputs(arguments: dict, error: type[Exception], message: str) -> None:
    given = dict(arguments)
    if "input_ids" in given:
        given["input_ids"] = torch.full((2, 3), given["input_ids"])
    if "attention_mask" in given:
        given["attention_mask"] = torch.tensor(given["attention_mask"])
    with pytest.raises(error, match=message):
        make()(**given)


@torch.no_grad()
@pytest.mark.parametrize("chunk", [1, 2])
def test_a_bounded_cache_has_no_room_for_more(chunk: int) -> None:
    model, x, cache = make(), _tokens(2, 10), DS4DCache(9)
    model(x[:, :8], past_key_values=cache)
    if chunk == 1:
        model(x[:, 8:9], past_key_values=cache)
    with pytest.raises(ValueError, match="would reach 10 tokens, but this state was made for at most 9"):
        model(x[:, 10 - chunk :], past_key_values=cache)


@torch.no_grad()
def test_a_cache_of_another_model() -> None:
    model, x = make(), _tokens(2, 10)
    cache = model(x, use_cache=True).past_key_values
    with pytest.raises(ValueError, match="belongs to another module"):
        make()(x, past_key_values=cache)
    with pytest.raises(ValueError, match="2 rows and 10 columns, or 20 with those of earlier chunks"):
        model(x, attention_mask=torch.ones(2, 3, dtype=torch.int64), past_key_values=cache)
    with pytest.raises(ValueError, match="2 streams, but x has 1 rows"):
        model(x[:1], past_key_values=cache)


def test_only_token_models_can_be_wrapped() -> None:
    with pytest.raises(TypeError, match="must be a module of type TokenModel, not Stack"):
        DS4DForCausalLM.from_model(STACKS["DS4D"]())
