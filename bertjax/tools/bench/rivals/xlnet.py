"""XLNetLMHeadModel."""

from typing import Any

import numpy as np
import torch
import transformers

from bertjax.errors import UserError
from bertjax.tools.bench.parts.rival_step import ACTIVATIONS, Rival
from bertjax.types import Batch


class XLNet(torch.nn.Module):
  """XLNetLMHeadModel, which gets the memory that it left; both streams, logits at the targets."""

  def __init__(self, config: Any):
    super().__init__()
    m = config.model
    needed = dict(untie_r=True, dtype='float32')
    got = {key: m[key] for key in needed}
    if got != needed or m.dropout != m.attention_dropout:
      raise UserError(
        f'--against=transformers needs config.model with {needed} and one rate of dropout, got '
        f'{got} and {m.dropout}, {m.attention_dropout}'
      )
    self.inner = transformers.XLNetLMHeadModel(
      transformers.XLNetConfig(
        vocab_size=m.vocab_size, d_model=m.width, n_layer=m.layers, n_head=m.heads, d_inner=m.ffn,
        ff_activation=ACTIVATIONS[m.activation], layer_norm_eps=m.norm_eps, mem_len=m.mem_len,
        reuse_len=m.reuse_len, clamp_len=m.clamp_len or -1, dropout=m.dropout,
        bi_data=config.data.plan.both_directions and config.batch_size % 2 == 0,
      )
    )  # fmt: skip
    zeros = torch.zeros(m.mem_len, config.batch_size, m.width)
    self.mems = [zeros] * m.layers if m.mem_len else None

  def forward(self, **inputs: torch.Tensor) -> Any:
    """Returns an output with `loss`, as the class does."""
    out = self.inner(**inputs, mems=self.mems, use_mems=self.mems is not None)
    self.mems = out.mems
    return out


def permuted_inputs(config: Any, batch: Batch) -> dict[str, torch.Tensor]:
  """Returns a batch with orders as the class's arguments; what unused slots predict is left out."""
  del config
  tensor = lambda x, kind: torch.tensor(np.asarray(x), dtype=kind)
  hidden_BTT = batch['order_q_BT'][:, :, None] <= batch['order_k_BT'][:, None, :]
  mapping_BPT = np.eye(hidden_BTT.shape[1])[batch['target_pos_BP']]
  return dict(
    input_ids=tensor(batch['token_BT'], torch.long),
    token_type_ids=tensor(batch['type_BT'], torch.long),
    perm_mask=tensor(hidden_BTT, torch.float32),
    target_mapping=tensor(mapping_BPT, torch.float32),
    labels=tensor(np.where(batch['weight_BP'] > 0, batch['target_BP'], -100), torch.long),
  )


RIVAL = Rival(XLNet, permuted_inputs)
