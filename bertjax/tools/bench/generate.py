"""python -m bertjax.bench generate: prompts read, and texts written token by token.

  python -m bertjax.bench generate --config=configs/gpt.py:small --batch_size=8 --length=64 \
      --new_tokens=32 --beams=4 --against=transformers

Weights and prompts are random, all prompts of one length; no text ends before its last token.
`prefill` reads the prompts and gives the logits of the next token, `greedy` takes the likeliest
token each time, `beams` searches; the last two read the prompts too. `tokens_per_second` counts
prompt tokens of `prefill` and new tokens of the others. With --against the class of transformers
does the same in a process of its own, in alternation, with its cache; `ratio` is their median time
over ours.
"""

import contextlib
import functools
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from absl import flags

from bertjax import models
from bertjax.config import command_line
from bertjax.errors import UserError
from bertjax.models.layers import decoding
from bertjax.models.layers.contracts import PairModel, WritingModel
from bertjax.models.layers.decoding import Beams, Sampling
from bertjax.tools.bench.parts import own_step, timing

KINDS = ('prefill', 'greedy', 'beams')

_CONFIG = command_line.define_config()
_BATCH_SIZE = flags.DEFINE_integer('batch_size', 8, 'Prompts at once.', lower_bound=1)
_LENGTH = flags.DEFINE_integer('length', 64, 'Tokens of a prompt.', lower_bound=1)
_NEW = flags.DEFINE_integer('new_tokens', 32, 'Tokens that are written.', lower_bound=1)
_BEAMS = flags.DEFINE_integer('beams', 4, 'Beams of the search.', lower_bound=1)
_AGAINST = flags.DEFINE_list('against', [], 'transformers: also time its generate.')
_CALLS = flags.DEFINE_integer('calls', 5, 'Timed calls of each side.', lower_bound=1)
flags.mark_flag_as_required('config')
flags.register_validator(
  'against', lambda arms: set(arms) <= {'transformers'}, message='--against takes transformers'
)


def main() -> None:
  """Times what is written and prints one JSON line. Raises UserError: no model that writes."""
  rows, length, new, count = _BATCH_SIZE.value, _LENGTH.value, _NEW.value, _BEAMS.value
  config = own_step.sized(_CONFIG.value, rows, length)
  prompt_BT = np.random.default_rng(0).integers(5, config.model.vocab_size, (rows, length))
  result: dict[str, Any] = dict(
    bench='generate', config=config.name, dtype=config.model.dtype, batch_size=rows, length=length,
    new_tokens=new, beam_width=count, calls=_CALLS.value,
  )  # fmt: skip
  for kind in KINDS:
    asked = (config.model, prompt_BT.astype(np.int32), new, count, kind)
    with contextlib.ExitStack() as stack:
      arms = dict(ours=make(*asked))
      if _AGAINST.value:
        arms['transformers'] = stack.enter_context(timing.apart(make_rival, *asked))
      seconds = timing.alternate(arms, _CALLS.value, 1)
    result[kind] = _said(seconds, rows * (length if kind == 'prefill' else new))
  print(json.dumps(result | timing.environment() | dict(device=jax.devices()[0].device_kind)))


def _said(seconds: Mapping[str, np.ndarray], tokens: int) -> dict[str, Any]:
  found: dict[str, Any] = {k: timing.summary(s, tokens, 'tokens') for k, s in seconds.items()}
  if 'transformers' in seconds:
    ratio = np.median(seconds['transformers']) / np.median(seconds['ours'])
    found['ratio'] = round(float(ratio), 4)
  return found


def make(
  model: Any, prompt_BT: np.ndarray, new_tokens: int, count: int, kind: str
) -> Callable[[], Any]:
  """Returns our side as a call that returns when its work is done: of a `config.model`, int32 ids,
  tokens to write, beams, and one of KINDS."""
  module = models.build(model)
  if not isinstance(module, WritingModel):
    raise UserError(f'config.model.name={model.name!r} writes no text: expected configs/gpt.py')
  ones, zeros = np.ones_like(prompt_BT), np.zeros_like(prompt_BT)
  batch = dict(token_BT=prompt_BT, example_BT=ones)
  batch |= {f'{name}_BT': zeros for name in module.tables}
  if isinstance(module, PairModel):
    batch['out_token_BU'] = prompt_BT[:, :1]
  whole = dict(position_BT=zeros, type_BT=zeros, target_pos_BP=zeros)
  whole |= dict(out_example_BU=ones[:, :1], out_position_BU=zeros[:, :1])
  init = lambda key: module.for_writing(module.init(key, batch | whole))
  variables = jax.jit(init)(jax.random.key(0))
  if kind == 'prefill':
    function = lambda variables, batch: module.apply(variables, batch, new_tokens, method='start')
  else:
    how = Beams(count) if kind == 'beams' else Sampling()
    function = functools.partial(decoding.written, module, model.vocab_size, how, new_tokens, -1)
  step = jax.jit(function)
  return lambda: jax.block_until_ready(step(variables, batch))


def make_rival(
  model: Any, prompt_BT: np.ndarray, new_tokens: int, count: int, kind: str
) -> Callable[[], Any]:
  """Returns the class of transformers as `make` returns ours."""
  import torch

  from bertjax.tools.bench.parts import rivals

  torch.set_num_threads(len(os.sched_getaffinity(0)))
  net: Any = rivals.net_of(model).eval().to(getattr(torch, model.dtype))
  net.generation_config.eos_token_id = None
  given: dict[str, Any] = dict(input_ids=torch.tensor(prompt_BT, dtype=torch.long))
  given['attention_mask'] = torch.ones_like(given['input_ids'])
  if kind == 'prefill':
    if net.config.is_encoder_decoder:
      given['decoder_input_ids'] = given['input_ids'][:, :1]
    else:
      given['logits_to_keep'] = 1
    call = functools.partial(net, **given, use_cache=True)
  else:
    call = functools.partial(
      net.generate, **given, max_new_tokens=new_tokens, min_new_tokens=new_tokens, do_sample=False,
      num_beams=count if kind == 'beams' else 1, pad_token_id=0,
    )  # fmt: skip

  def run() -> Any:
    with torch.no_grad():
      return call()

  return run
