"""XLNets of the test size, their batches, and the same for PyTorch `transformers`."""

import cases
import numpy as np
import torch_models
from slow_imports import torch

ROWS, LENGTH, MEMORY, REUSE, SLOTS = 4, 24, 10, 12, 6
LENGTHS = (17, 24, 9, 20)


def config(**model):
  """Memory begins empty, as transformers' does."""
  c = cases.config('xlnet', **(dict(mem_len=MEMORY, reuse_len=REUSE) | model))
  c.objective.memory = 'empty'
  return c


def make_batch(seed: int = 0, both: bool = False, lengths=LENGTHS) -> dict[str, np.ndarray]:
  """Left-padded rows with three segments, random orders and targets; an unused slot in each. A
  row of padding alone has no targets."""
  rng = np.random.default_rng(seed)
  column = np.arange(LENGTH)
  real = column[None] >= LENGTH - np.array(lengths)[:, None]
  order = rng.permuted(np.tile(column, (ROWS, 1)), axis=1).astype(np.int32)
  plain = rng.random((ROWS, LENGTH)) < 0.5
  batch = dict(
    token_BT=np.where(real, rng.integers(5, cases.VOCAB, (ROWS, LENGTH)), 5).astype(np.int32),
    example_BT=real.astype(np.int32),
    type_BT=np.where(real, (column > 12).astype(int) + (column > 22), 4).astype(np.int32),
    target_pos_BP=np.zeros((ROWS, SLOTS), np.int32),
    target_BP=np.zeros((ROWS, SLOTS), np.int32),
    weight_BP=np.zeros((ROWS, SLOTS), np.float32),
    start_B=np.zeros(ROWS, np.int32),
  )
  for b in np.flatnonzero(real.any(1)):
    chosen = np.sort(rng.choice(np.flatnonzero(real[b]), SLOTS - 1, replace=False))
    plain[b, chosen] = False
    batch['target_pos_BP'][b, :-1] = chosen
    batch['target_BP'][b, :-1] = rng.integers(5, cases.VOCAB, SLOTS - 1)
    batch['weight_BP'][b, :-1] = 1
  target = np.zeros((ROWS, LENGTH), bool)
  np.put_along_axis(target, batch['target_pos_BP'][:, :-1], batch['weight_BP'][:, :-1] > 0, 1)
  batch['order_k_BT'] = np.where(plain, -1, order).astype(np.int32)
  batch['order_q_BT'] = (batch['order_k_BT'] + ~target).astype(np.int32)
  if both:
    batch['direction_B'] = np.where(np.arange(ROWS) < ROWS // 2, 1, -1).astype(np.int32)
  return batch


def torch_inputs(batch) -> 'dict[str, torch.Tensor]':
  used = batch['weight_BP'] > 0
  hidden = batch['order_q_BT'][:, :, None] <= batch['order_k_BT'][:, None, :]
  mapping = np.eye(LENGTH)[batch['target_pos_BP']] * used[..., None]
  tensor = lambda x: torch.tensor(np.asarray(x))
  return dict(
    input_ids=tensor(batch['token_BT']).long(),
    attention_mask=tensor(batch['example_BT']).float(),
    token_type_ids=tensor(batch['type_BT']).long(),
    perm_mask=tensor(hidden).float(),
    target_mapping=tensor(mapping).float(),
    labels=tensor(np.where(used, batch['target_BP'], -100)).long(),
  )


def make_case(kind: str = 'plain', both: bool = False, lengths=LENGTHS, **model):
  """(config, state dict, two batches, torch model); kinds as in parity_test.py."""
  c = config(**model)
  std = dict(plain=0.02, large=0.1, norm=0.02)[kind]
  more = dict(reuse_len=c.model.reuse_len, bi_data=both)
  theirs = torch_models.like(c.model, 'XLNetLMHeadModel', std, **more)
  with torch.no_grad():
    for name, parameter in theirs.named_parameters():
      if kind == 'norm' and ('word_embedding' in name or 'mask_emb' in name):
        parameter.mul_(0.3)
  batches = tuple(make_batch(seed, both, lengths) for seed in range(2))
  return c, torch_models.state_of(theirs), batches, theirs
