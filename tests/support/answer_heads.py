"""Heads of answers in PyTorch: those of ELECTRA written out, those of transformers' XLNet."""

import copy

import numpy as np
import torch
import torch_models
import transformers
from transformers.models.xlnet import modeling_xlnet


class Electra(torch.nn.Module):
  """google-research/electra, finetune/qa/qa_tasks.py, with joint_prediction and
  answerable_uses_start_logits: GELU layers of 512, no norm."""

  def __init__(self, width):
    super().__init__()
    self.start, self.end = torch.nn.Linear(width, 1), torch.nn.Linear(512, 1)
    self.hidden, self.none = torch.nn.Linear(2 * width, 512), torch.nn.Linear(512, 1)
    self.none_hidden = torch.nn.Linear(2 * width, 512)

  def start_logits(self, h):
    return self.start(h)[..., 0]

  def end_logits(self, h, start_h):
    both = torch.cat([h, start_h.expand_as(h)], -1)
    return self.end(torch.nn.functional.gelu(self.hidden(both)))[..., 0]

  def none_logit(self, mean, cls):
    both = torch.cat([mean, cls], -1)
    return self.none(torch.nn.functional.gelu(self.none_hidden(both)))[..., 0]

  def ours(self, of):
    pairs = dict(
      start=self.start, end_hidden=self.hidden, end=self.end, none_hidden=self.none_hidden,
      none=self.none,
    )  # fmt: skip
    return {name: linear(layer, of) for name, layer in pairs.items()}


class Xlnet(torch.nn.Module):
  """The heads of transformers."""

  def __init__(self, width, eps):
    super().__init__()
    c = transformers.XLNetConfig(d_model=width, n_head=1, layer_norm_eps=eps)
    self.s = modeling_xlnet.XLNetPoolerStartLogits(c)
    self.e = modeling_xlnet.XLNetPoolerEndLogits(c)
    self.a = modeling_xlnet.XLNetPoolerAnswerClass(c)

  def start_logits(self, h):
    return self.s(h)

  def end_logits(self, h, start_h):
    return self.e(h, start_states=start_h.expand_as(h))

  def none_logit(self, mean, cls):
    return self.a(cls[:, None], start_states=mean)

  def ours(self, of):
    e, a = self.e, self.a
    found = dict(
      start=linear(self.s.dense, of), end_hidden=linear(e.dense_0, of), end=linear(e.dense_1, of),
      none_hidden=linear(a.dense_0, of), none=linear(a.dense_1, of),
    )  # fmt: skip
    return found | dict(end_norm=dict(scale=of(e.LayerNorm.weight), bias=of(e.LayerNorm.bias)))


def linear(layer, of):
  kernel = dict(kernel=of(layer.weight).T)
  return kernel if layer.bias is None else dict(kernel, bias=of(layer.bias))


class Theirs(torch.nn.Module):
  """An encoder of transformers with a head, whose rows are padded on the right as ours."""

  def __init__(self, family, c):
    super().__init__()
    kinds = dict(xlnet='XLNetModel', albert='AlbertModel', electra='ElectraModel')
    alone = copy.deepcopy(c)  # with heads that a class of transformers has
    alone.model.update(dict(answers='none', token_labels=(('span', 2),)))
    self.encoder = torch_models.like(alone.model, kinds[family])
    width = c.model.width
    self.head = Electra(width) if family == 'electra' else Xlnet(width, c.model.norm_eps)
    torch.manual_seed(1)
    with torch.no_grad():
      for name, parameter in self.head.named_parameters():
        parameter.normal_(1.0 if name.endswith('LayerNorm.weight') else 0.0, 0.2)

  def forward(self, batch, allowed_BT):
    long = lambda name: torch.tensor(np.asarray(batch[name], np.int64))
    h = self.encoder(
      input_ids=long('token_BT'), attention_mask=(long('example_BT') > 0).long(),
      token_type_ids=long('type_BT'),
    ).last_hidden_state  # fmt: skip
    mask = lambda x: x.masked_fill(~allowed_BT, -1e30)
    rows, first, gold = torch.arange(len(h)), long('first_BG')[:, 0], long('span_start_BG')[:, 0]
    start = mask(self.head.start_logits(h))
    end = mask(self.head.end_logits(h, h[rows, gold][:, None]))
    mean = torch.einsum('bt,btd->bd', start.softmax(-1), h)
    return h, start, end, self.head.none_logit(mean, h[rows, first])
