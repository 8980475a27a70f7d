"""Models of transformers: names, objects, what is missing, and answers that no other row, thread or batch changes."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass

import huggingface_hub
import numpy as np
import pytest

import longcrawl as lc
from longcrawl.errors import StageError
from longcrawl.io.files import content_digest
from longcrawl.text.models import has_gpu, load_model, name_model

pytestmark = pytest.mark.usefixtures("torch")


@pytest.fixture
def folder(tmp_path, tiny_models):
    for each in tiny_models.tiny():
        each.save_pretrained(tmp_path / "tiny")
    return tmp_path / "tiny"


@dataclass(frozen=True)
class Named:
    model: str


def last(model, ids):
    return model(ids).logits[:, -1]


def rows_of(*lengths):
    drawn = np.random.default_rng(0)
    return [drawn.integers(0, 257, length) for length in lengths]


def test_a_folder_is_loaded_in_evaluation_mode_once_until_its_files_change(folder, tiny_models):
    loaded = load_model(str(folder), "causal", "cpu")
    assert loaded is load_model(str(folder), "causal", "cpu")
    assert (loaded.module.training, loaded.longest, str(loaded.device)) == (False, 64, "cpu")
    before = content_digest(str(folder))
    tiny_models.tiny(seed=1)[0].save_pretrained(folder)
    assert content_digest(str(folder)) != before
    other = load_model(str(folder), "causal", "cpu")
    (row,) = rows_of(9)
    assert not np.array_equal(loaded.each([row], last)[0], other.each([row], last)[0])


def test_answers_do_not_depend_on_other_rows_order_threads_or_batches(folder, torch):
    loaded = load_model(str(folder), "causal", "cpu")
    rows = rows_of(7, 30, 7, 1, 7, 30, 64, 7)
    with torch.inference_mode():
        plain = [last(loaded.module, torch.tensor(row)[None])[0].double().numpy() for row in rows]
    for decimals in (None, 4):
        alone = [loaded.each([row], last, decimals)[0] for row in rows]
        order = [5, 0, 3, 7, 1, 6, 2, 4]
        for threads in (1, 3):
            torch.set_num_threads(threads)
            together = loaded.each(rows, last, decimals)
            assert torch.get_num_threads() == threads
            shuffled = loaded.each([rows[number] for number in order], last, decimals)
            assert [each.tolist() for each in together] == [each.tolist() for each in alone]
            assert [each.tolist() for each in shuffled] == [alone[number].tolist() for number in order]
        for found, expected in zip(alone, plain, strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-5 if decimals is None else 6e-5)


def test_a_cpu_is_asked_without_a_question_to_cuda(folder, monkeypatch, torch):
    """The question whether a stream is captured takes CUDA into use, and no worker could be forked that uses a GPU."""
    asked = []

    def is_capturing():
        asked.append("capturing")
        return False

    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", is_capturing)
    loaded = load_model(str(folder), "causal", "cpu")
    loaded.each(rows_of(5, 9), last)
    assert not asked
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    loaded.each(rows_of(5, 9), last)
    assert asked  # else this test asks nothing


def test_only_a_stage_that_asks_a_gpu_learns_as_a_task(folder, monkeypatch, torch):
    stages = [lc.long.InformationGain(str(folder), device=device) for device in ("auto", "cuda", "cpu")]
    stages.append(lc.text.SequenceClassifier(str(folder)))
    for gpus, found in ((0, [False] * 4), (1, [True, True, False, True])):
        monkeypatch.setattr(torch.cuda, "device_count", lambda gpus=gpus: gpus)
        assert [each.uses_gpu for each in stages] == found
    assert not lc.text.GopherQuality().uses_gpu


def test_a_gpu_that_cannot_be_used_or_is_full_is_one_sentence(folder, monkeypatch, torch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)

    def refuse():
        raise RuntimeError("Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must")

    def fill(*_):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "init", lambda: None)
        loaded = load_model(str(folder), "causal", "cuda")
        patch.setattr(type(loaded.module), "to", fill)
        with pytest.raises(StageError, match="does not fit into the GPU's memory: set device to 'cpu'$"):
            loaded.each(rows_of(3), last)
    monkeypatch.setattr(torch.cuda, "init", refuse)
    fix = "set device to 'cpu', or in a process that has used the GPU num_proc to 1$"
    with pytest.raises(StageError, match=rf"cannot use cuda \(Cannot re-init.* forked subprocess\): {fix}"):
        load_model(str(folder), "causal").each(rows_of(3), last)
    with pytest.raises(StageError, match="1 x 3 tokens do not fit into the GPU's memory beside .*: lower max_length"):
        load_model(str(folder), "causal", "cpu").each(rows_of(3), fill)


@pytest.mark.slow
def test_threads_that_compute_first_in_a_process_round_as_later_ones(folder):
    """MKL looks at the processor in its first call; between one of 3,000 processes and one of 30 had other answers."""
    script = """
import os, sys
import numpy, torch
from transformers import AutoModelForCausalLM
from longcrawl.text.models import Pretrained

torch.set_num_threads(2)
module, others = AutoModelForCausalLM.from_pretrained(sys.argv[1]).eval(), 0
rows = [numpy.array([1, 1, 1, last]) for last in (1, 2)]
for _ in range(2_000):
    if not (child := os.fork()):
        loaded = Pretrained("tiny", module, None, "cpu", "float32")
        first, again = (loaded.each(rows, lambda model, ids: model(ids).logits[:, 0]) for _ in range(2))
        os._exit(not all(numpy.array_equal(first[0], each) for each in (*first, *again)))
    others += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(others)
"""
    ran = subprocess.run([sys.executable, "-c", script, str(folder)], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "0"


def test_a_value_where_rounding_turns_is_that_of_its_row_alone(folder, torch):
    """Batches answer a little otherwise here, by less than the tolerance."""
    loaded, asked = load_model(str(folder), "causal", "cpu"), []
    values = {3: 0.123449, 9: 0.5, 100: -2.0}

    def ask(_, ids):
        asked.append(len(ids))
        noise = 0 if len(ids) == 1 else 3e-6
        return torch.tensor([[values[first] + noise] for first in ids[:, 0].tolist()])

    found = loaded.each([np.array([first, 1, 2]) for first in (3, 9, 100, 3)], ask, 4)
    assert sorted(asked) == [1, 1, 4]
    assert [each.tolist() for each in found] == [[0.1234], [0.5], [-2.0], [0.1234]]


def test_texts_become_ids_without_special_tokens_unless_asked(folder):
    loaded = load_model(str(folder), "causal", "cpu")
    one, none = loaded.token_ids(["a<|end|>é", ""])
    assert (len(one), len(none), one.dtype) == (10, 0, np.int64)
    assert 0 not in one
    assert len(loaded.token_ids(["a<|end|>"], "added")[0]) == 2
    assert [len(ids) for ids in loaded.token_ids(["abcdef", "a"], most=3)] == [3, 1]


def test_an_object_is_named_by_its_weights_and_tokenizer(tmp_path, monkeypatch, tiny_models, torch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    named = [Named(tiny_models.tiny(seed=seed)) for seed in (0, 0, 1)]
    for each in named:
        name_model(each)
    assert (named[0] == named[1], named[0] == named[2]) == (True, False)
    pipeline = type("pipeline", (), {"model": tiny_models.tiny()[0], "tokenizer": tiny_models.tiny()[1]})()
    by_pipeline = Named(pipeline)
    name_model(by_pipeline)
    assert by_pipeline == named[0]
    loaded = load_model(named[0].model, "causal", "cpu")
    row = rows_of(20)
    with torch.inference_mode():
        expected = last(tiny_models.tiny()[0].eval(), torch.tensor(np.stack(row)))
    np.testing.assert_allclose(loaded.each(row, last)[0], expected[0], atol=1e-6)
    assert not [each for each in (tmp_path / "longcrawl/models").iterdir() if ".partial" in each.name]
    for wrong in (3, (1, 2), tiny_models.tiny()[0]):
        with pytest.raises(StageError, match=r"^a model is a folder that save_pretrained wrote"):
            name_model(Named(wrong))


def test_the_first_call_names_the_folder_of_later_ones_and_another_tokenizer_another(
    tmp_path, monkeypatch, tiny_models
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    pair = tiny_models.tiny()
    named = [Named(pair), Named(pair)]
    for name, value in (("model_max_length", 7), ("truncation_side", "left")):
        model, tokenizer = tiny_models.tiny()
        setattr(tokenizer, name, value)
        named.append(Named((model, tokenizer)))
    for each in named:
        name_model(each)
    first, again, shorter, left = (each.model for each in named)
    assert first == again
    assert len({first, shorter, left}) == 3
    assert load_model(shorter, "causal", "cpu").longest == 7
    assert load_model(left, "causal", "cpu").token_ids(["ab"], most=1) == load_model(first, "causal").token_ids(["b"])


def test_a_tokenizer_of_bytes_needs_no_file(tmp_path, tiny_models):
    import transformers

    model, _ = tiny_models.tiny(vocab_size=384)
    for each in (model, transformers.ByT5Tokenizer()):
        each.save_pretrained(tmp_path)
    loaded = load_model(str(tmp_path), "causal", "cpu")
    assert loaded.token_ids(["ab</s>"])[0].tolist() == [letter + 3 for letter in b"ab</s>"]


def test_a_model_that_counts_on_from_padding_takes_fewer_tokens(tmp_path, tiny_models):
    import transformers

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = transformers.RobertaConfig(vocab_size=257, max_position_embeddings=34, **sizes)
    for each in (transformers.RobertaForSequenceClassification(config), tiny_models.tiny()[1]):
        each.save_pretrained(tmp_path)
    loaded = load_model(str(tmp_path), "classifier", "cpu")
    assert loaded.longest == 32
    assert len(loaded.each([np.full(32, 5)], lambda model, ids: model(ids).logits)[0]) == 2


def test_a_tokenizer_of_more_ids_than_the_model_is_one_sentence(tmp_path, tiny_models):
    for each in (tiny_models.tiny(vocab_size=50)[0], tiny_models.tiny()[1]):
        each.save_pretrained(tmp_path)
    loaded = load_model(str(tmp_path), "causal", "cpu")
    with pytest.raises(
        StageError, match=r"returns token \d+, but its model has only 50 ids: save the tokenizer that the model"
    ):
        loaded.token_ids(["abc", "z"])


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff"])
def test_a_cut_or_odd_configuration_is_one_sentence(folder, content):
    (folder / "config.json").write_bytes(content)
    with pytest.raises(StageError, match=r"config\.json (cannot be read|is not a JSON object).*: save the model with"):
        lc.text.SequenceClassifier(str(folder)).materials()
    (folder / "config.json").write_text('{"architectures": 3}')
    assert lc.text.SequenceClassifier(str(folder)).materials()[str(folder)]["about"] == "a model of transformers"


def test_a_classifier_answers_with_its_labels(tmp_path, tiny_models):
    for each in tiny_models.tiny("classifier", num_labels=3, pad_token_id=0):
        each.save_pretrained(tmp_path)
    loaded = load_model(str(tmp_path), "classifier", "cpu")
    rows = rows_of(12, 12, 5)
    answers = loaded.each(rows, lambda model, ids: model(ids).logits.softmax(-1), 4)
    assert [len(each) for each in answers] == [3, 3, 3]
    assert loaded.config.num_labels == 3


def test_a_model_of_the_hub_that_was_fetched_is_found_without_a_network(folder, tmp_path, monkeypatch):
    cached = tmp_path / "hub/models--me--tiny"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs/main").write_text("0" * 40)
    shutil.copytree(folder, cached / "snapshots" / ("0" * 40))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert lc.text.SequenceClassifier("me/tiny").files() == (str(cached / "snapshots" / ("0" * 40)),)
    assert load_model("me/tiny", "causal", "cpu").longest == 64
    digest = content_digest(str(folder))
    assert lc.text.SequenceClassifier("me/tiny").materials() == {
        "me/tiny": {"about": "GPT2LMHeadModel", "sha256": digest}
    }


def test_bfloat16_answers_nearly_as_float32(folder):
    rows = rows_of(12, 5)
    exact, rounded = (
        load_model(str(folder), "causal", "cpu", each).each(rows, last) for each in ("float32", "bfloat16")
    )
    for one, other in zip(exact, rounded, strict=True):
        assert 1e-5 < np.abs(one - other).max() < 0.1 * np.abs(one).max()


def damage_tokenizer(folder, _):
    for file in folder.glob("tokenizer*"):
        file.unlink()


def pickled_weights(folder, tiny_models):
    import torch

    (folder / "model.safetensors").unlink()
    torch.save(tiny_models.tiny()[0].state_dict(), folder / "pytorch_model.bin")


def own_code(folder, _):
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Config", "AutoModelForCausalLM": "mine.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "mine.py").write_text("raise SystemExit('code of the model was run')")


@pytest.mark.variants
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_tokenizer, "has no tokenizer: save it there with tokenizer.save_pretrained"),
        (pickled_weights, "does not load as a causal model from safetensors"),
        (own_code, "does not load as a causal model from safetensors"),
        (lambda folder, _: (folder / "config.json").unlink(), "which has no config.json: give a folder"),
        (lambda folder, _: (folder / "config.json").write_text("{"), "does not load as a causal model"),
    ],
)
def test_what_a_folder_lacks_is_one_sentence(folder, tiny_models, damage, message):
    damage(folder, tiny_models)
    with pytest.raises(StageError, match=message) as raised:
        load_model(str(folder), "causal", "cpu")
    assert "\n" not in str(raised.value)


def test_weights_for_another_task_are_an_error(folder):
    with pytest.raises(StageError, match=r"is not a classifier model, it has no weights for score\.weight: choose one"):
        load_model(str(folder), "classifier", "cpu")


def test_a_model_that_is_nowhere_is_one_sentence(tmp_path):
    with pytest.raises(StageError, match=r"^no model at '.*', which has no config\.json: give a folder"):
        load_model(str(tmp_path / "gone"), "causal")
    with pytest.raises(
        StageError, match=r"^model 'nobody/nothing' is not a folder here and cannot be fetched from the Hub"
    ):
        load_model("nobody/nothing", "causal")


def test_a_gpu_that_is_not_there_is_one_sentence(folder):
    if has_gpu():
        pytest.skip("there is a GPU")
    with pytest.raises(StageError, match=r"^no GPU is available for the model .*: set device to 'cpu' or 'auto'$"):
        load_model(str(folder), "causal", "cuda").each(rows_of(3), last)


def test_a_row_that_is_too_long_is_one_sentence(folder):
    with pytest.raises(StageError, match=r"^a row has 65 tokens, but .* takes at most 64: cut it$"):
        load_model(str(folder), "causal", "cpu").each(rows_of(3, 65), last)


def test_without_torch_it_says_what_to_install(folder):
    code = "import sys; sys.modules['torch'] = None; import longcrawl.text.models as m; m.load_model('m', 'causal')"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=os.environ)
    assert """StageError: the model 'm' needs torch: pip install "longcrawl[torch]\"""" in ended.stderr


@pytest.mark.slow
def test_importing_longcrawl_imports_neither_torch_nor_transformers():
    code = "import sys, longcrawl.text.models; sys.exit({'torch', 'transformers'} & sys.modules.keys() and 1 or 0)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_model_that_sees_later_tokens_is_not_causal(tmp_path, tiny_models):
    import transformers

    _, tokenizer = tiny_models.tiny()
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    bert = transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=len(tokenizer), **sizes))
    for each in (bert, tokenizer):
        each.save_pretrained(tmp_path)
    with pytest.raises(StageError, match="is not a causal model, since its tokens attend to later ones"):
        load_model(str(tmp_path), "causal", "cpu")
