"""Loss runs: a short, shallow model of true width learns a chain of known entropy, apart from all timing."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional

from precision_agent.backends.te.api import Api, Owner
from precision_agent.backends.te.problem import Problem
from precision_agent.backends.te.session.engine import Engine, generator
from precision_agent.backends.te.sizes import Trial, trials_of
from precision_agent.backends.te.steps.modules import DTYPE, Stack, layer_plans, rotary, stack
from precision_agent.method import loss
from precision_agent.protocol import LossPlan, LossTrack
from precision_api.facts.mixtures import Parts

LAYERS = 2
MOST_TOKENS = 4096
"""Of one step: the chain has 64 states, so that some thousand tokens show all of its transitions."""
LEARNING_RATE = 3e-4
"""The usual one of models of some billion weights."""
INIT_STD = 0.02


@dataclass(slots=True)
class LossModel:
    """Embedding, two layers in the variant's recipes, norm and head in BF16, FusedAdam with master weights."""

    api: Api
    engine: Engine
    problem: Problem
    parts: Parts
    seed: int
    layers: Stack = field(init=False)
    embedding: torch.Tensor = field(init=False)
    head: torch.Tensor = field(init=False)
    scale: torch.Tensor = field(init=False)
    sequence: int = field(init=False)
    rows: int = field(init=False)

    def __post_init__(self) -> None:
        problem, device = self.problem, self.engine.device
        torch.manual_seed(self.seed)  # Transformer Engine draws its weights from torch's own generators
        self.sequence = min(problem.sequence, MOST_TOKENS)
        self.rows = max(-(-loss.LEAST_TOKENS // self.sequence), min(problem.micro_batch, MOST_TOKENS // self.sequence))
        dense = trials_of(problem.model)[0].dense
        trial = Trial(min(LAYERS, problem.model.num_hidden_layers) - dense, dense=dense)
        plans = layer_plans(problem.model, problem.split, trial, self.sequence * self.rows)
        held = (problem.attention_core, problem.primary_weights)
        self.layers = stack(self.api, plans, self.parts, device, *held)
        self.layers.rotary = rotary(self.api, problem.model, self.sequence, device)
        hidden, vocabulary = problem.model.hidden_size, problem.model.vocab_size or loss.STATES
        chance = generator(self.engine.device, self.seed)

        def drawn() -> torch.Tensor:
            values = torch.randn(vocabulary, hidden, generator=chance, device=device) * INIT_STD
            return values.to(DTYPE).requires_grad_()

        self.embedding, self.head = drawn(), drawn()
        self.scale = torch.ones(hidden, device=device, dtype=DTYPE).requires_grad_()

    @property
    def weights(self) -> list[torch.Tensor]:
        layers = [weight for layer in self.layers.layers for weight in layer.parameters()]
        return [self.embedding, self.head, self.scale, *layers]

    def step_loss(self, tokens: torch.Tensor) -> torch.Tensor:
        """Mean nats a token of predicting each next one; `tokens` is (sequence + 1, rows)."""
        y = self.layers.forward(functional.embedding(tokens[:-1], self.embedding), None).float()
        normed = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-5) * self.scale.float()
        logits = normed.to(DTYPE) @ self.head.t()
        return functional.cross_entropy(logits.float().flatten(0, 1), tokens[1:].flatten())


def loss_run(api: Api, engine: Engine, problem: Problem, parts: Parts, plan: LossPlan) -> LossTrack:
    """Loss and gradient norm of each step; ends at the first loss that is no finite number."""
    with Owner(api).present():
        model = LossModel(api, engine, problem, parts, plan.seed)
        chain = loss.source(problem.model.vocab_size or loss.STATES, plan.seed)
        rate = LEARNING_RATE * plan.learning_rate_factor
        optimizer = api.pytorch.optimizers.FusedAdam(params=model.weights, lr=rate, master_weights=True)
        losses: list[float] = []
        norms: list[float] = []
        for step in range(plan.steps):
            seeds = [(plan.seed * 1_000_003 + step) * 4099 + row for row in range(model.rows)]
            drawn = [loss.sequence(chain, model.sequence + 1, seed) for seed in seeds]
            tokens = torch.tensor(drawn, device=engine.device).t().contiguous()
            value, norm = _step(model, optimizer, tokens)
            losses.append(value)
            norms.append(norm)
            if not math.isfinite(value):
                break
    return LossTrack(tuple(losses), tuple(norms))


def _step(model: LossModel, optimizer: Any, tokens: torch.Tensor) -> tuple[float, float]:
    for weight in model.weights:
        weight.grad = None
    loss = model.step_loss(tokens)
    loss.backward()
    norms = torch._foreach_norm([weight.grad for weight in model.weights if weight.grad is not None])
    norm = float(torch.stack([norm.float() for norm in norms]).norm())
    optimizer.step()
    return float(loss.detach()), norm
