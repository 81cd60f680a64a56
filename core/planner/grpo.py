"""One iteration's learning, by the trainer of the library `trl`: its groups, advantages, loss and optimiser steps.

The trainer is made anew for every iteration, and handed the model, the optimiser, rollouts that are already played and
what they earned. So an iteration depends on nothing that the trainer might keep, and one that is resumed from weights
and optimiser is the one that would have followed. That costs a few hundredths of a second at pocket scale.
"""

from __future__ import annotations

import math
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from core.draws import derive_seed
from core.errors import ConfigError
from core.planner.config import LearnConfig
from core.planner.planner import LanguagePlanner, Sampled
from core.planner.rollouts import Rollouts
from core.pocket.threads import is_small, suited_threads


@dataclass(frozen=True, slots=True)
class Update:
    """What an iteration's learning came to: the last step's loss and the gradient's norm before it was cut, and over
    all steps the mean entropy, and divergence from the planner that learning began with, of tokens that were chosen
    (nats; NaN where not known)."""

    loss: float
    gradient: float
    entropy: float = math.nan
    divergence: float = math.nan


def new_optimiser(planner: LanguagePlanner, config: LearnConfig) -> torch.optim.AdamW:
    """AdamW over all weights, as published; the rate is set at every iteration."""
    return torch.optim.AdamW(
        [weight for _, weight in named_weights(planner)],
        lr=config.learning_rate,
        betas=(0.9, 0.999),
        weight_decay=0.0,
    )


def named_weights(planner: LanguagePlanner) -> list[tuple[str, torch.nn.Parameter]]:
    """The weights that learn, by name, each once; in one order, always."""
    return sorted(planner.model.named_parameters())


def check_installed() -> None:
    """ConfigError, in one sentence, where the libraries of the extra `conductor` are missing."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import trl  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "Planners learn by the library trl, which is not installed: pip install 'trinity-inspector[conductor]'."
        ) from error


def learn_from(
    planner: LanguagePlanner,
    start: LanguagePlanner,
    optimiser: torch.optim.Optimizer,
    rollouts: Rollouts,
    config: LearnConfig,
    iteration: int,
) -> Update:
    """Move the planner's weights, in place, by what an iteration's rollouts earned; `start` is what it is held to."""
    check_installed()
    if not rollouts.signal:  # no advantage anywhere: a step would move the weights by momentum alone
        return Update(0.0, 0.0)
    for group in optimiser.param_groups:
        group["lr"] = group["initial_lr"] = config.rate(iteration)
    small = is_small(planner.model)
    with warnings.catch_warnings(), suited_threads(small), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")  # of libraries, about settings that are theirs
        return _train(planner, start, optimiser, rollouts, config, iteration, folder)


def _train(
    planner: LanguagePlanner,
    start: LanguagePlanner,
    optimiser: torch.optim.Optimizer,
    rollouts: Rollouts,
    config: LearnConfig,
    iteration: int,
    folder: str,
) -> Update:
    from datasets import Dataset
    from huggingface_hub import constants
    from transformers import PrinterCallback
    from trl.trainer.grpo_trainer import GRPOTrainer

    # Each trainer would tell the library's makers what is trained, on what and on how many machines.
    constants.HF_HUB_DISABLE_TELEMETRY = True

    def hand_over(prompts: Sequence[object], trainer: object) -> dict[str, Any]:
        """What was written for the trainer's prompts, which are the numbers of groups, one for each rollout.
        Tokens that were not chosen are no part of the loss."""
        return {
            "prompt_ids": [list(one.prompt) for one in rollouts.written],
            "completion_ids": [list(one.ids) for one in rollouts.written],
            "logprobs": None,
            "env_mask": [[int(chosen) for chosen in one.chosen] for one in rollouts.written],
        }

    def earnings(**_: object) -> list[float | None]:
        """The rewards; None leaves a rollout out of its group."""
        return [None if math.isnan(reward) else reward for reward in rollouts.rewards]

    groups = len(rollouts.episodes) // rollouts.size
    seen = _Seen()
    kind = GRPOTrainer
    if planner.card.constrained:
        kind = _trainer_of_lists(planner, start if config.is_anchored else None, rollouts, config, seen)
    trainer = kind(
        model=planner.model,
        reward_funcs=earnings,
        args=_settings(planner, rollouts, config, iteration, folder),
        train_dataset=Dataset.from_dict({"prompt": [str(number) for number in range(groups)]}),
        processing_class=planner.tokenizer,
        optimizers=(optimiser, None),
        rollout_func=hand_over,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    torch.nn.Module.eval(planner.model)
    logged = next(entry for entry in reversed(trainer.state.log_history) if "grad_norm" in entry)
    entropy = seen.entropy if planner.card.constrained else float(logged.get("entropy", math.nan))
    return Update(float(logged["loss"]), float(logged["grad_norm"]), entropy, seen.divergence)


@dataclass(slots=True)
class _Seen:
    """Sums over the chosen tokens of all steps."""

    tokens: int = 0
    entropies: float = 0.0
    divergences: float = math.nan

    def add(self, chosen: Tensor, entropies: Tensor, divergences: Tensor | None) -> None:
        """Both of every token of a batch [rows, tokens], and which tokens were chosen."""
        self.tokens += int(chosen.sum())
        self.entropies += float(entropies.detach()[chosen].sum())
        if divergences is not None:
            before = 0.0 if math.isnan(self.divergences) else self.divergences
            self.divergences = before + float(divergences.detach()[chosen].sum())

    @property
    def entropy(self) -> float:
        return self.entropies / self.tokens if self.tokens else math.nan

    @property
    def divergence(self) -> float:
        return self.divergences / self.tokens if self.tokens else math.nan


@dataclass(frozen=True, slots=True)
class _Form:
    """Of the tokens of one reply: which others the lists could not hold [tokens, vocabulary], and how strongly each is
    held to its beginning [tokens]."""

    barred: Tensor
    anchors: Tensor


def _trainer_of_lists(
    planner: LanguagePlanner,
    anchor: LanguagePlanner | None,
    rollouts: Rollouts,
    config: LearnConfig,
    seen: _Seen,
) -> Any:
    """The trainer with probabilities over the tokens that lists can hold, which are those of the policy that wrote.

    The library takes an entropy for each token and lowers the loss by it (`entropy_coef`). It is given the divergence
    from `anchor` instead, negative and weighted, so that the loss is raised by that."""
    from trl.trainer.grpo_trainer import GRPOTrainer

    forms = {(*one.prompt, *one.ids): _form(planner, one, config) for one in rollouts.written}

    class TrainerOfLists(GRPOTrainer):
        def _get_per_token_logps_and_entropies(
            self,
            model: Any,
            input_ids: Tensor,
            attention_mask: Tensor,
            logits_to_keep: int,
            batch_size: int | None = None,
            **_: object,
        ) -> tuple[Tensor, Tensor, None]:
            logps, terms = [], []
            size = batch_size or len(input_ids)
            for start in range(0, len(input_ids), size):
                ids, mask = input_ids[start : start + size], attention_mask[start : start + size]

                def logits_of(causal: Any, ids: Tensor = ids, mask: Tensor = mask) -> Tensor:
                    kept = causal(input_ids=ids, attention_mask=mask, logits_to_keep=logits_to_keep + 1)
                    logits: Tensor = kept.logits[:, :-1].float() / self.temperature
                    return logits

                logits = logits_of(model)
                barred = torch.zeros(logits.shape, dtype=torch.bool)
                weights = torch.zeros(logits.shape[:2])
                for row, (tokens, known) in enumerate(zip(ids, mask, strict=True)):
                    form = forms[tuple(tokens[known.bool()].tolist())]
                    barred[row, : len(form.barred)] = form.barred
                    weights[row, : len(form.anchors)] = form.anchors
                barred, weights = barred.to(logits.device), weights.to(logits.device)
                # a number instead of infinity, of which the entropy would make NaN
                found = logits.masked_fill(barred, -1e9).log_softmax(-1)
                logps.append(found.gather(-1, ids[:, -logits_to_keep:, None]).squeeze(-1))
                shares = found.exp()
                divergences = None
                if anchor is not None:
                    with torch.no_grad():
                        first = logits_of(anchor.model).masked_fill(barred, -1e9).log_softmax(-1)
                    divergences = (shares * (found - first)).sum(-1)
                terms.append(-weights * divergences if divergences is not None else torch.zeros_like(weights))
                if torch.is_grad_enabled():
                    chosen = ((~barred).sum(-1) > 1) & mask[:, -logits_to_keep:].bool()
                    seen.add(chosen, -(shares * found).sum(-1), divergences)
            return torch.cat(logps), torch.cat(terms), None

    return TrainerOfLists


def _form(planner: LanguagePlanner, written: Sampled, config: LearnConfig) -> _Form:
    anchors = [
        config.anchor_models if place.part == "models" else config.anchor_form
        for place in planner.places(written)
    ]
    return _Form(planner.biases(written).isinf(), torch.tensor(anchors))


def _settings(
    planner: LanguagePlanner, rollouts: Rollouts, config: LearnConfig, iteration: int, folder: str
) -> Any:
    from trl.trainer.grpo_config import GRPOConfig

    number = len(rollouts.episodes)
    batch = config.batch or number // config.updates
    return GRPOConfig(
        output_dir=folder,
        max_steps=config.updates,
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=number // config.updates // batch,
        generation_batch_size=number,
        num_generations=rollouts.size,
        max_completion_length=planner.card.most_tokens,
        beta=0.0,
        scale_rewards="group",
        loss_type=config.loss,
        epsilon=config.clip,
        entropy_coef=config.rate(iteration) / config.learning_rate if config.is_anchored else 0.0,
        temperature=config.temperature,
        learning_rate=config.rate(iteration),
        lr_scheduler_type="constant",
        max_grad_norm=config.max_grad_norm,
        gradient_checkpointing=config.gradient_checkpointing,
        shuffle_dataset=False,
        seed=derive_seed((config.seed, "trl", iteration)) % 2**31,
        use_cpu=planner.model.device.type == "cpu",
        bf16=planner.model.device.type != "cpu",
        save_strategy="no",
        logging_steps=1,
        logging_nan_inf_filter=False,
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
    )
