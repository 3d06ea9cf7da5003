"""`generate` of transformers: the tokens of the library, whether by one row or many, with a cache or without.

The common tests of transformers for generation are not part of its distribution. These are their counterparts.
"""

import copy

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from torch import Tensor
from transformers import GenerationConfig, PreTrainedTokenizerFast, StaticCache, TextStreamer, pipeline, set_seed

from delayssm.hf import DS4DCache, DS4DForCausalLM
from tests.delayssm.hf.models import V, every_model, make, padded
from tests.support.numerics import relative_rms

PROMPTS = [torch.randint(0, V, (n,), generator=torch.Generator().manual_seed(n)) for n in (9, 3, 14, 1)]
NEW = 40


def _continue(model: DS4DForCausalLM, side: str, **settings: object) -> Tensor:
    """Return what follows each prompt, (B, NEW)."""
    batch = padded(PROMPTS, side)
    tokens = model.generate(**batch, **{"max_new_tokens": NEW, "do_sample": False, **settings})
    assert torch.equal(tokens[:, :14], batch["input_ids"].repeat_interleave(len(tokens) // len(PROMPTS), 0))
    return tokens[:, 14:]


@every_model
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("settings", [{}, {"return_dict_in_generate": True}], ids=["bounded", "unbounded"])
def test_greedy_tokens_are_those_of_the_library(kind: str, side: str, settings: dict) -> None:
    """A cache that is returned may be continued, so it has no bound; the other one has."""
    model, batch = make(kind), padded(PROMPTS, side)
    expected = model.model.generate_batch(PROMPTS, NEW, temperature=0)
    output = model.generate(**batch, max_new_tokens=NEW, do_sample=False, **settings)
    tokens = output.sequences if settings else output
    assert tokens[:, 14:].tolist() == expected
    if settings:
        assert output.past_key_values.get_max_length() == -1
        assert output.past_key_values.state.position.tolist() == [len(prompt) + NEW - 1 for prompt in PROMPTS]


def test_rows_end_where_they_end() -> None:
    model = make()
    stop = int(_continue(model, "left")[0, 5])
    expected = model.model.generate_batch(PROMPTS, NEW, temperature=0, stop=stop)
    tokens = _continue(model, "left", eos_token_id=stop, pad_token_id=0)
    lengths = [len(row) for row in expected]
    assert min(lengths) <= 5
    for row, known in zip(tokens.tolist(), expected, strict=True):
        assert row[: len(known)] == known
        assert set(row[len(known) + 1 :]) <= {0}


@every_model
@pytest.mark.parametrize("settings", [{}, {"num_beams": 3}, {"do_sample": True, "top_k": 5}], ids=str)
def test_a_cache_changes_nothing(kind: str, settings: dict) -> None:
    model, outputs = make(kind), {}
    for use_cache in (True, False):
        set_seed(0)
        outputs[use_cache] = model.generate(
            **padded(PROMPTS, "left"), max_new_tokens=12, **{"do_sample": False, **settings}, use_cache=use_cache,
            return_dict_in_generate=True, output_logits=True, output_scores=True,
        )  # fmt: skip
    assert outputs[False].past_key_values is None
    assert torch.equal(outputs[True].sequences, outputs[False].sequences)
    for a, b in zip(outputs[True].logits, outputs[False].logits, strict=True):
        assert relative_rms(a, b) <= 1e-6
    if "num_beams" in settings:
        assert relative_rms(outputs[True].sequences_scores, outputs[False].sequences_scores) <= 1e-6


@every_model
@pytest.mark.parametrize("settings", [{}, {"num_beams": 3, "num_return_sequences": 2}], ids=["greedy", "beams"])
def test_left_padding_changes_nothing(kind: str, settings: dict) -> None:
    model = make(kind)
    together = _continue(model, "left", **settings)
    count = settings.get("num_return_sequences", 1)
    for i, prompt in enumerate(PROMPTS):
        alone = model.generate(prompt[None], max_new_tokens=NEW, do_sample=False, **settings)[:, len(prompt) :]
        assert torch.equal(together[i * count : (i + 1) * count], alone)


def test_beams_continue_the_streams_that_they_came_from() -> None:
    """The best of five beams is at least as likely as the greedy answer, and its score is its probability."""
    model, prompt = make(), PROMPTS[0]
    found = model.generate(
        prompt[None], max_new_tokens=8, num_beams=5, num_return_sequences=5, do_sample=False, length_penalty=0.0,
        return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    moved = found.beam_indices != torch.arange(5)[:, None]
    assert bool(moved.any())  # otherwise the order of streams would not matter
    with torch.no_grad():
        choices = model(found.sequences).logits[:, len(prompt) - 1 : -1].log_softmax(-1)
        chosen = choices.gather(2, found.sequences[:, len(prompt) :, None]).sum((1, 2))
    assert relative_rms(found.sequences_scores, chosen) <= 1e-6
    greedy = model.generate(prompt[None], max_new_tokens=8, do_sample=False)
    with torch.no_grad():
        choices = model(greedy).logits[:, len(prompt) - 1 : -1].log_softmax(-1)
    assert chosen.max() >= choices.gather(2, greedy[:, len(prompt) :, None]).sum() - 1e-5


def test_sampling() -> None:
    model, draws = make(), []
    for seed in (0, 0, 1):
        set_seed(seed)
        draws.append(_continue(model, "left", do_sample=True, temperature=0.8, num_return_sequences=3))
    assert draws[0].shape == (12, NEW)
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert len(set(map(tuple, draws[0].tolist()))) == 12


@pytest.mark.parametrize("size", [1, 4, 100])
def test_prompts_in_chunks(size: int) -> None:
    model = make()
    assert torch.equal(_continue(model, "left", prefill_chunk_size=size), _continue(model, "left"))


@pytest.mark.parametrize("whole_prompt", [True, False])
def test_a_conversation_goes_on_in_its_cache(whole_prompt: bool) -> None:
    """The second call is given everything, or only what is new and a mask of everything."""
    model, batch = make(), padded(PROMPTS, "left")
    first = model.generate(**batch, max_new_tokens=5, do_sample=False, return_dict_in_generate=True)
    more = torch.randint(0, V, (4, 3))
    said = torch.cat([first.sequences, more], 1)
    mask = torch.cat([batch["attention_mask"], torch.ones(4, 8, dtype=torch.int64)], 1)
    cache, branch = first.past_key_values, copy.deepcopy(first.past_key_values)
    assert cache.get_seq_length() == 18  # the last token has been chosen, but not read
    given = said if whole_prompt else said[:, 18:]
    for kept in (cache, branch):
        tokens = model.generate(
            given, attention_mask=mask, past_key_values=kept, max_new_tokens=20, do_sample=False
        )[:, -20:]  # fmt: skip
        assert torch.equal(
            tokens, model.generate(said, attention_mask=mask, max_new_tokens=20, do_sample=False)[:, 22:]
        )


def test_vectors_as_prompts() -> None:
    model, batch = make(), padded(PROMPTS, "left")
    vectors = model.get_input_embeddings()(batch["input_ids"].clamp(min=0)).detach()
    tokens = model.generate(
        inputs_embeds=vectors, attention_mask=batch["attention_mask"], max_new_tokens=NEW, do_sample=False
    )
    assert torch.equal(tokens, _continue(model, "left"))


def test_the_library_and_transformers_share_a_model() -> None:
    """After generation the model trains, and its streams begin afresh with the new parameters."""
    model = make()
    before = _continue(model, "left")
    optimiser = torch.optim.SGD(model.parameters(), 0.5)
    model(PROMPTS[0][None], labels=PROMPTS[0][None]).loss.backward()
    optimiser.step()
    after = _continue(model, "left")
    assert not torch.equal(before, after)
    assert after.tolist() == model.model.generate_batch(PROMPTS, NEW, temperature=0)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"cache_implementation": "static"}, ValueError, "leave out cache_implementation='static'"),
        ({"attention_mask": torch.tensor([[0, 0, 0], [1, 1, 1]])}, ValueError, "row 0 of attention_mask has no token"),
        (
            {"attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0]]), "prefill_chunk_size": 2},
            ValueError,
            "padded on the right cannot be processed in chunks",
        ),
        (
            {"attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0]]), "use_cache": False},
            ValueError,
            "row 1 of attention_mask has padding between its tokens",
        ),
        ({"past_key_values": DS4DCache(4)}, ValueError, "would reach 5 tokens, but this state was made for at most 4"),
        ({"prompt_lookup_num_tokens": 2}, ValueError, "(?i)assisted generation is not supported with stateful models"),
        ({"max_new_token": 3}, ValueError, "max_new_token"),
        ({"output_hidden_states": True, "return_dict_in_generate": True}, TypeError, "output_hidden_states"),
    ],
)
def test_wrong_settings(settings: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make().generate(torch.ones(2, 3, dtype=torch.int64), **{"max_new_tokens": 8, "do_sample": False, **settings})


def test_a_cache_of_another_kind() -> None:
    from transformers import LlamaConfig

    llama = LlamaConfig(num_hidden_layers=1, hidden_size=8, num_attention_heads=2)
    with pytest.raises(TypeError, match="past_key_values must be a DS4DCache, not StaticCache"):
        make().generate(PROMPTS[0][None], past_key_values=StaticCache(config=llama, max_cache_len=9), max_new_tokens=3)


def test_a_pipeline(capsys: pytest.CaptureFixture[str]) -> None:
    """Texts go in and come out, through a tokenizer that pads on the left; a streamer prints them as they arise."""
    letters = {letter: i for i, letter in enumerate("abcdefghijklmnopqr")}
    tokenizer = Tokenizer(WordLevel({**letters, "<pad>": 18, "<eos>": 19}, unk_token="<pad>"))
    tokenizer.pre_tokenizer = Split("", "isolated")
    both = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", padding_side="left"
    )  # fmt: skip
    model, texts = make(), ["abc", "defgh"]
    expected = model.model.generate_batch([[letters[c] for c in text] for text in texts], 5, temperature=0)
    expected = [both.decode(row, skip_special_tokens=True) for row in expected]
    settings = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None}
    found = pipeline("text-generation", model=model, tokenizer=both)(
        texts, batch_size=2, return_full_text=False, **settings
    )  # fmt: skip
    assert [row["generated_text"].split() for (row,) in found] == [text.split() for text in expected]
    streamer = TextStreamer(both, skip_prompt=True, skip_special_tokens=True)
    model.generate(both("abc", return_tensors="pt").input_ids, streamer=streamer, **settings)
    assert capsys.readouterr().out.split() == expected[0].split()


def test_settings_may_come_from_a_configuration() -> None:
    model = make()
    model.generation_config = GenerationConfig(max_new_tokens=7, do_sample=False)
    assert torch.equal(model.generate(PROMPTS[0][None])[0, 9:], _continue(model, "left")[0, :7])
