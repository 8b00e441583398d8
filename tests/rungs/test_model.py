"""The model is GPT-2: transformers' own implementation is the judge."""

import pytest
import torch
from helpers import load, random_batch, relative_error, rung
from models import SHAPE, reference_model, tiny
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch.nn.functional import cross_entropy

from ladder.cli import MODELS
from ladder.measure.scripts import all_scripts, number_of, rungs_for
from ladder.weights import CONV1D


def to_linear(name: str, tensor: torch.Tensor) -> torch.Tensor:
    return tensor.t() if name.endswith(CONV1D) else tensor


@pytest.mark.parametrize("number", [0, 10, number_of(rungs_for("cpu")[-1])])
def test_logits_and_gradients_equal_transformers(number):
    reference = reference_model(tied=number >= 1)
    module = load(rung(number))
    model = module.GPT(module.GPTConfig(**SHAPE))
    weights = reference.state_dict()
    for name, w in weights.items():
        weights[name] = to_linear(name, w)
    model.load_state_dict(weights, strict=True)

    x, y = random_batch(T=64, V=512)
    loss = model(x, y)
    expected = reference(x).logits
    expected_loss = cross_entropy(expected.flatten(0, 1), y.flatten())
    torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-4)
    assert loss.item() == pytest.approx(expected_loss.item(), rel=1e-6)

    loss.backward()
    expected_loss.backward()
    exact = dict(reference.named_parameters())
    for name, p in model.named_parameters():
        expected_grad = to_linear(name, exact.pop(name).grad)
        assert relative_error(p.grad, expected_grad) < 1e-5, name
    assert not exact


@pytest.mark.parametrize("script", all_scripts(), ids=lambda path: path.stem)
def test_no_token_sees_a_later_one(script):
    model = tiny(load(script), vocab_size=512)
    x, _ = random_batch(V=512)
    other = x.clone()
    other[:, 24:] = (x[:, 24:] + 1) % 512
    change = model(x)[:, :24] - model(other)[:, :24]
    assert change.abs().max() < 1e-3, f"attention of {script.name} is not causal"


def test_sizes_of_the_family():
    module = load(rung(1))
    sizes = {}
    for name, shape in MODELS.items():
        with torch.device("meta"):
            model = module.GPT(module.GPTConfig(**shape))
        sizes[name] = sum(p.numel() for p in model.parameters())
    sizes_of_openai = [124_439_808, 354_823_168, 774_030_080, 1_557_611_200]
    assert list(sizes.values()) == [7_357_312, *sizes_of_openai]


@pytest.mark.parametrize("number", [5, 10])
def test_backward_of_a_compiled_step_takes_the_gradient_of_the_loss_alone(number):
    """If the model returned its logits too, it would take a (B, T, vocab_size) of zeros for them,
    and add that to their gradient."""
    taken = []

    def backward(graph, _):
        for node in graph.graph.find_nodes(op="placeholder"):
            if node.name.startswith("tangents"):
                taken.append(node.meta["val"].shape)
        return make_boxed_func(graph.forward)

    def forward(graph, _):
        return make_boxed_func(graph.forward)

    compiler = aot_autograd(fw_compiler=forward, bw_compiler=backward)
    module = load(rung(number))
    model = torch.compile(module.GPT(module.GPTConfig(**SHAPE)), backend=compiler)
    model(*random_batch(V=512)).backward()
    assert taken == [torch.Size([])]
