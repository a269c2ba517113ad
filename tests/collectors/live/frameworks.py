"""Training jobs of frameworks: `frameworks.py NAME RUN_DIR [--fail-at N]`, with 1 rank or more.

Each makes 8 optimizer steps, with gradients of two batches of two samples in each, evaluates and
saves after the fourth, and raises in the forward pass of step `--fail-at` (from 0).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from importlib import import_module
from pathlib import Path

import torch

import tracekit

N_STEPS, N_ACCUMULATED, BATCH = 8, 2, 2
EVERY = 4
OPTIONS = {"steps": 3, "wait": 2}
WORLD_SIZE = int(os.environ.get("WORLD_SIZE", "1"))


class Data(torch.utils.data.Dataset):
    """Samples of 3, 4, 5, 6, 3, … tokens, padded to 8."""

    def __init__(self, n_samples):
        self.n_samples = n_samples

    def __len__(self):
        return self.n_samples

    def __getitem__(self, index):
        tokens = torch.arange(8)
        mask = (tokens < 3 + index % 4).long()
        return {"input_ids": tokens, "attention_mask": mask, "labels": tokens}


class Failing(torch.nn.Module):
    """Passes its input on, so many times."""

    def __init__(self, fail_at):
        super().__init__()
        self.n_left = None if fail_at is None else fail_at * N_ACCUMULATED

    def forward(self, x):
        if self.n_left is not None and self.training:
            self.n_left -= 1
            if self.n_left < 0:
                raise ValueError("the job fails")
        return x


def n_samples():
    return N_STEPS * N_ACCUMULATED * BATCH * WORLD_SIZE


def model(fail_at):
    return torch.nn.Sequential(
        torch.nn.Embedding(8, 8), Failing(fail_at), torch.nn.Flatten(), torch.nn.Linear(64, 1)
    )


def hugging_face(run_dir, fail_at):
    from transformers import (  # noqa: PLC0415
        GPT2Config,
        GPT2LMHeadModel,
        PrinterCallback,
        Trainer,
        TrainingArguments,
    )

    tiny = GPT2LMHeadModel(
        GPT2Config(vocab_size=16, n_positions=16, n_embd=8, n_layer=2, n_head=2, use_cache=False)
    )
    tiny.transformer.ln_f = torch.nn.Sequential(tiny.transformer.ln_f, Failing(fail_at))
    arguments = TrainingArguments(
        output_dir=str(run_dir.with_name("out")),
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        max_steps=N_STEPS,
        per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=N_ACCUMULATED,
        eval_strategy="steps",
        eval_steps=EVERY,
        save_steps=EVERY,
        logging_steps=EVERY,
    )
    trainer = Trainer(
        tiny,
        arguments,
        train_dataset=Data(n_samples()),
        eval_dataset=Data(4),
        callbacks=[tracekit.TransformersCallback(run_dir, **OPTIONS)],
    )
    trainer.remove_callback(PrinterCallback)  # it prints where this job prints its JSON
    trainer.train()
    assert not tiny._forward_pre_hooks


def lightning(run_dir, fail_at, package="lightning.pytorch"):
    pl = import_module(package)

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = model(fail_at)

        def training_step(self, batch):
            return self.model(batch["input_ids"]).sum()

        def validation_step(self, batch):
            self.model(batch["input_ids"])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    callback = tracekit.LightningCallback(run_dir, **OPTIONS)
    assert isinstance(callback, pl.Callback)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=WORLD_SIZE,
        strategy="ddp" if WORLD_SIZE > 1 else "auto",
        max_steps=N_STEPS,
        accumulate_grad_batches=N_ACCUMULATED,
        val_check_interval=EVERY * N_ACCUMULATED,
        limit_val_batches=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=run_dir.with_name("out"),
        callbacks=[callback, pl.callbacks.ModelCheckpoint(every_n_train_steps=EVERY)],
    )
    trainer.fit(Module(), *(torch.utils.data.DataLoader(Data(n), BATCH) for n in (n_samples(), 4)))
    assert "save_checkpoint" not in vars(trainer)


def pytorch_lightning(run_dir, fail_at):
    lightning(run_dir, fail_at, "pytorch_lightning")
    assert "lightning" not in sys.modules


def accelerate(run_dir, fail_at):
    from accelerate import Accelerator  # noqa: PLC0415

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=N_ACCUMULATED)
    net = model(fail_at)
    net, optimizer, loader = accelerator.prepare(
        net,
        torch.optim.SGD(net.parameters(), lr=0.01),
        torch.utils.data.DataLoader(Data(n_samples()), BATCH),
    )
    with tracekit.AccelerateCollection(accelerator, run_dir, **OPTIONS) as c:
        for number, batch in enumerate(loader, 1):
            with accelerator.accumulate(net):
                accelerator.backward(net(batch["input_ids"]).sum())
                optimizer.step()
                optimizer.zero_grad()
            c.samples(batch["attention_mask"].sum(1).tolist())
            c.step()
            if number == EVERY * N_ACCUMULATED:
                with c.phase("evaluation"):
                    net(batch["input_ids"])
                accelerator.save_state(str(run_dir.with_name("out")))
    assert "save_state" not in vars(accelerator)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--fail-at", type=int)
    given = parser.parse_args()
    torch.set_num_threads(1)
    globals()[given.name](given.run_dir, given.fail_at)
    heavy = sorted({"polars", "msgspec"} & set(sys.modules))
    rank = int(os.environ.get("RANK", "0"))
    sys.stdout.write(json.dumps({"rank": rank, "heavy": heavy}) + "\n")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
