"""The model is GPT-2: transformers' own implementation is the judge."""

import pytest
import torch
import transformers
from conftest import TINY, load, rung

from ladder.cli import MODELS
from ladder.measure.scripts import all_scripts

SHAPE = {**TINY, "vocab_size": 512}
CONV1D = ("c_attn.weight", "c_proj.weight", "c_fc.weight")  # transformers keeps these transposed


def reference_model(tied: bool):
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        **SHAPE, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, tie_word_embeddings=tied
    )
    model = transformers.GPT2LMHeadModel(config)
    with torch.no_grad():  # away from the start, so that biases and attention matter
        for p in model.parameters():
            p.add_(torch.randn(p.shape) * 0.1)
    return model


def to_linear(name: str, tensor: torch.Tensor) -> torch.Tensor:
    return tensor.t() if name.endswith(CONV1D) else tensor


@pytest.mark.parametrize("number", [0, 10, len(all_scripts()) - 1])
def test_logits_and_gradients_equal_transformers(number):
    reference = reference_model(tied=number >= 1)
    module = load(rung(number))
    model = module.GPT(module.GPTConfig(**SHAPE))
    weights = {n: to_linear(n, t) for n, t in reference.state_dict().items()}
    model.load_state_dict(weights, strict=True)

    idx = torch.randint(0, 512, (2, 65), generator=torch.Generator().manual_seed(1))
    x, y = idx[:, :-1], idx[:, 1:]
    logits, loss = model(x, y)
    expected = reference(x).logits
    expected_loss = torch.nn.functional.cross_entropy(expected.flatten(0, 1), y.flatten())
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
    assert loss.item() == pytest.approx(expected_loss.item(), rel=1e-6)

    loss.backward()
    expected_loss.backward()
    gradients = {n: to_linear(n, p.grad) for n, p in reference.named_parameters()}
    found = dict(model.named_parameters())
    assert found.keys() == gradients.keys()
    for name, gradient in gradients.items():
        error = (found[name].grad - gradient).norm() / gradient.norm()
        assert error < 1e-5, f"{name}: relative error {error:.1e}"


def test_sizes_of_the_family():
    module, sizes = load(rung(1)), []
    for shape in MODELS.values():
        with torch.device("meta"):
            model = module.GPT(module.GPTConfig(**shape))
        sizes.append(sum(p.numel() for p in model.parameters()))
    assert [shape["n_head"] for shape in MODELS.values()] == [4, 12, 16, 20, 25]
    assert sizes == [7_357_312, 124_439_808, 354_823_168, 774_030_080, 1_557_611_200]


def test_baseline_is_untied_and_starts_at_002():
    module = load(rung(0))
    with torch.device("meta"):
        full = module.GPT(module.GPTConfig())
    assert sum(p.numel() for p in full.parameters()) == 163_037_184
    torch.manual_seed(0)
    for name, p in module.GPT(module.GPTConfig(**TINY)).named_parameters():
        if p.dim() == 2:
            assert p.std().item() == pytest.approx(0.02, rel=0.03), name
        else:
            assert set(p.flatten().tolist()) == {1.0 if "ln_" in name and "weight" in name else 0.0}
