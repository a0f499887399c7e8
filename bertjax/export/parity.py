"""Outputs of our model and of the class of transformers for equal inputs, layer by layer."""

import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from ml_collections import ConfigDict

from bertjax import models
from bertjax.errors import UserError, amount
from bertjax.formats import family as family_lib
from bertjax.formats import weights
from bertjax.kernels.cross_entropy import logits

# Of a hidden state and of logits in float32: of the largest value there, and of at least 1.
HIDDEN, LOGITS = 2e-5, 1e-4
LENGTHS = (17, 32, 9, 1)  # of the texts; the shorter ones are padded


class Outputs(NamedTuple):
  """Outputs of a model at the tokens that are not padding."""

  hidden: list[np.ndarray]  # outputs of each layer, [tokens, D]
  logits: dict[str, np.ndarray]  # name -> [tokens, classes], or [texts, classes] of a label


class Inputs(NamedTuple):
  """The fixed texts."""

  # token_BT, type_BT, example_BT, language_BT: see types.py
  token_BT: np.ndarray
  type_BT: np.ndarray
  example_BT: np.ndarray
  language_BT: np.ndarray
  pad: int  # id of the padding


def inputs_of(model: Any, pad: int | None) -> Inputs:
  """Returns random ids of all lengths, both segments and, where there are any, all languages; `pad`
  is the vocabulary's id of it, None the one that positions begin behind."""
  pad = int(max(model.get('position_offset', 0) - 1, 0)) if pad is None else pad
  rng = np.random.default_rng(17)
  module = models.build(model)
  most = min(n for n in (module.room, module.alike, max(LENGTHS)) if n is not None)
  lengths = np.minimum(LENGTHS, most)
  shape = (len(lengths), int(lengths.max()))
  column_1T = np.arange(shape[1])[None]
  real_BT = column_1T < lengths[:, None]
  token_BT = rng.integers(0, model.vocab_size, shape)
  token_BT[token_BT == pad] = (pad + 1) % model.vocab_size
  type_BT = (column_1T * 2 > lengths[:, None]) * int(module.has_segments)
  languages = dict(model.get('extra', ())).get('language', 1)
  language_BT = np.broadcast_to(np.arange(len(lengths))[:, None] % languages, shape)
  clean = lambda x, fill: np.where(real_BT, x, fill).astype(np.int32)
  return Inputs(
    clean(token_BT, pad), clean(type_BT, 0), real_BT.astype(np.int32), clean(language_BT, 0), pad
  )


def rounded(params: Any, dtype: str) -> Any:
  """Parameters as a file of that dtype holds them."""
  if dtype == 'float32':
    return params
  return jax.tree.map(lambda x: np.asarray(x).astype(dtype).astype(np.float32), params)


def ours(model: Any, params: Any, inputs: Inputs) -> Outputs:
  """Runs our model on the inputs, in float32 as the other side, whatever the run computes in."""
  module = models.build(ConfigDict({**model, 'dtype': 'float32'}))
  batch = _batch(module, inputs)
  real_BT = inputs.example_BT > 0

  def run(params):
    out = dict(module.apply({'params': params}, batch, method=module.read))
    word = out.pop('word', None)
    return out, None if word is None else logits(word)

  device = jax.devices()[0]  # without a copy, where the memory of the arrays allows it
  params = jax.tree.map(lambda x: jax.device_put(x, device, may_alias=True), params)
  out, word_BTV = jax.device_get(jax.jit(run)(params))
  found = {}
  if word_BTV is not None:
    found['word'] = word_BTV[real_BT][:, : model.vocab_size]
  found |= {name: x_BGC[:, 0] for name, x_BGC in out.get('label_BGC', {}).items()}
  found |= {name: x_BTC[real_BT] for name, x_BTC in out.get('token_label_BTC', {}).items()}
  if 'answers' in out:
    beam = out['answers']
    found |= _answers(np.exp(beam.start_BK), np.exp(beam.end_BKK), beam.none_B)
  if 'pooled_BGD' in out and not out['label_BGC']:
    found['pooled'] = out['pooled_BGD'][:, 0]
  if 'rtd_BT' in out:
    found['replaced'] = out['rtd_BT'][real_BT][:, None]
  states = [*out['hidden_LBTD'], *out.get('out_hidden_LBUD', ())]
  return Outputs([h_BTD[real_BT] for h_BTD in states], found)


def _batch(module: Any, inputs: Inputs) -> dict[str, np.ndarray]:
  rows, length = inputs.token_BT.shape
  place_BT = np.broadcast_to(np.arange(length, dtype=np.int32), (rows, length))
  second_BU = np.pad(inputs.token_BT[:, :-1], ((0, 0), (1, 0)))  # the first, a token later
  first_B1 = np.zeros((rows, 1), np.int32)
  if module.frame in ('cls_last', 'end'):
    first_B1 += inputs.example_BT.sum(1, keepdims=True) - 1
  batch = dict(
    token_BT=inputs.token_BT, type_BT=inputs.type_BT, example_BT=inputs.example_BT,
    language_BT=inputs.language_BT, position_BT=place_BT, target_pos_BP=place_BT,
    first_BG=first_B1, out_token_BU=second_BU, out_example_BU=inputs.example_BT,
    out_position_BU=place_BT,
  )  # fmt: skip
  if module.spells:
    shape = (rows, length, module.spells)
    batch['character_BTW'] = np.random.default_rng(17).integers(256, size=shape, dtype=np.int32)
  return batch


def _answers(start_BK: np.ndarray, end_BKK: np.ndarray, none_B: np.ndarray) -> dict[str, Any]:
  """Returns the probabilities of the likeliest answers, in order, and the log-odds that there is
  none. Of starts that are as likely as each other either may come first."""
  both_BKK = start_BK[:, :, None] * end_BKK
  return dict(answers=np.sort(both_BKK.reshape(len(both_BKK), -1)), none=none_B[:, None])


def theirs(
  directory: pathlib.Path, model: Any, inputs: Inputs, state: Any = None
) -> tuple[Outputs, dict[str, Any]]:
  """Runs the class that the directory holds, see `load`; returns also the keys it missed or did not
  expect."""
  import torch

  net, keys = load(directory, model, state)
  module = models.build(model)
  given = arguments(net, model, module, inputs)
  with torch.no_grad():
    if model.name == 'transformer_xl':  # a causal XLNet takes no mask of several rows
      rows = zip(given['input_ids'], inputs.example_BT.sum(1), strict=True)
      found = [outputs(net(row[None, :n], output_hidden_states=True), model) for row, n in rows]
      return joined(found), keys
    real_BT = _placed(module, inputs, inputs.example_BT) > 0
    return outputs(net(**given, output_hidden_states=True), model, real_BT), keys


def joined(found: Sequence[Outputs]) -> Outputs:
  """Returns the outputs of texts that were run one by one, as those of all."""
  each = zip(*(x.hidden for x in found), strict=True)
  logits = {name: np.concatenate([x.logits[name] for x in found]) for name in found[0].logits}
  return Outputs([np.concatenate(x) for x in each], logits)


def load(directory: pathlib.Path, model: Any, state: Any = None) -> tuple[Any, dict[str, Any]]:
  """Returns the net of the class that a directory holds, in float32, and the keys it missed or did
  not expect. `state` is what `weights.read` found in a directory from elsewhere, whose names may be
  wrapped: it takes the place of files that transformers would not read. Raises ImportError if torch
  or transformers is not installed."""
  import torch
  import transformers

  transformers.logging.set_verbosity_error()
  transformers.logging.disable_progress_bar()
  config = transformers.AutoConfig.from_pretrained(directory)
  name = (config.architectures or [family_lib.class_of(model)])[0]
  own: dict[str, Any] = dict(pretrained_model_name_or_path=directory)
  if state is not None and not isinstance(state, weights.Tensors):
    tensors = {name: torch.from_numpy(np.asarray(x)) for name, x in state.items()}
    own = dict(pretrained_model_name_or_path=None, config=config, state_dict=tensors)
  net, info = getattr(transformers, name).from_pretrained(
    **own, output_loading_info=True, dtype=torch.float32, attn_implementation='eager'
  )
  keys = {key: sorted(map(str, info.get(key) or ())) for key in ('missing_keys', 'unexpected_keys')}
  return net.eval(), keys


def arguments(net: Any, model: Any, module: Any, inputs: Inputs) -> dict[str, Any]:
  """Returns what a class takes for the inputs, by its own names; `module` is the model, built."""
  import torch

  tensor = lambda x_BT: torch.tensor(_placed(module, inputs, x_BT), dtype=torch.long)
  family, batch = family_lib.find(model.family), _batch(module, inputs)
  given = dict(input_ids=tensor(inputs.token_BT), attention_mask=tensor(inputs.example_BT))
  if module.has_segments:
    given['token_type_ids'] = tensor(inputs.type_BT)
  if family.pair:
    given['decoder_input_ids'] = tensor(batch['out_token_BU'])
  given |= {name: tensor(x_BT) for name, x_BT in family.takes(module, batch).items()}
  if any(head.kind == 'answers' for head in models.heads_of(model)):
    last = module.frame == 'cls_last'
    given |= _asked(given['attention_mask'], tensor(inputs.type_BT), last)
  if 'pad_token_id' in net.config and net.config.pad_token_id is None:
    net.config.pad_token_id = inputs.pad  # without one GPT-2 takes one text at a time
  name = type(net).__name__
  if name.endswith(('ForMultipleChoice', 'DoubleHeadsModel')):  # it takes [texts, choices, tokens]
    given = {key: value[:, None] for key, value in given.items()}
  if name.endswith('DoubleHeadsModel'):
    # OpenAIGPT's takes no mask of choices; no token sees what is behind it.
    del given['attention_mask']
    given['mc_token_ids'] = torch.tensor(inputs.example_BT.sum(1, keepdims=True) - 1)
  return given


def _placed(module: Any, inputs: Inputs, x_BT: np.ndarray) -> np.ndarray:
  """Returns columns as a class has them: before a row whose last token it reads stands padding."""
  left_B = (inputs.example_BT.shape[1] - inputs.example_BT.sum(1)) * (module.frame == 'cls_last')
  return np.stack([np.roll(x_T, left) for x_T, left in zip(x_BT, left_B, strict=True)])


def _asked(real_BT: Any, type_BT: Any, last: bool) -> dict[str, Any]:
  """Returns the tokens that may not be in an answer, as in the original, and the column of [CLS],
  the last or the first; the text is in segment 0, or 1."""
  text_BT = (type_BT == (0 if last else 1)) & (real_BT > 0)
  # Behind the last token of the text, which is [SEP], and behind padding there is none.
  allowed_BT = text_BT & text_BT.roll(-1, 1)
  column = real_BT.shape[1] - 1 if last else 0
  allowed_BT[:, column] = True
  column_B = column * real_BT.new_ones(len(real_BT))
  return dict(p_mask=(~allowed_BT).float(), cls_index=column_B)


# transformers' name of an output -> ours, and whether it is of every token.
_LOGITS = dict(
  prediction_logits=('word', True),
  mc_logits=('right', False),
  seq_relationship_logits=('next', False),
  sop_logits=('order', False),
  pooler_output=('pooled', False),
)


def outputs(out: Any, model: Any, real_BT: np.ndarray | None = None) -> Outputs:
  """Returns the outputs of a class under our names; None: of one text without padding."""
  number = lambda x: x.float().numpy()
  rows = lambda x: number(x.flatten(0, -3) if x.dim() == 4 else x)  # of choices
  pick = lambda x: number(x)[0] if real_BT is None else rows(x)[real_BT]
  found = {}
  for key, (name, tokens) in _LOGITS.items():
    if out.get(key) is not None:
      found[name] = pick(out[key]) if tokens else number(out[key])
  if 'start_logits' in out:
    found['span'] = np.stack([pick(out['start_logits']), pick(out['end_logits'])], -1)
  if 'cls_logits' in out:  # which calls probabilities log_probs, and lays ends out before starts
    start_BK, end_BKK = number(out['start_top_log_probs']), number(out['end_top_log_probs'])
    end_BKK = end_BKK.reshape(len(start_BK), -1, start_BK.shape[1]).swapaxes(1, 2)
    found |= _answers(start_BK, end_BKK, number(out['cls_logits']))
  if 'logits' in out:  # what most classes call theirs
    heads = {head.kind: head for head in reversed(models.heads_of(model))}
    if 'replaced' in heads:
      found['replaced'] = pick(out['logits'])[:, None]
    elif 'text' in heads and 'word' not in heads:
      found[heads['text'].name] = number(out['logits'])
    else:
      found[(heads.get('word') or heads['token']).name] = pick(out['logits'])
  states = [
    h
    for key in ('hidden_states', 'encoder_hidden_states', 'decoder_hidden_states')
    for h in (out.get(key) or ())[1:]
  ]
  return Outputs([pick(h) for h in states], found)


def differences(mine: Outputs, other: Outputs) -> list[dict[str, Any]]:
  """One entry for each layer and head: how far the two are apart, and whether that is too far.
  Raises UserError if they have other layers or heads."""
  if len(mine.hidden) != len(other.hidden) or mine.logits.keys() != other.logits.keys():
    raise UserError(
      f'the class has {amount(len(other.hidden), "layers")} and the heads {sorted(other.logits)}, '
      f'our model {len(mine.hidden)} and {sorted(mine.logits)}'
    )
  pairs = [
    (f'hidden state {i + 1}', a, b, HIDDEN)
    for i, (a, b) in enumerate(zip(mine.hidden, other.hidden, strict=True))
  ]
  pairs += [(name, mine.logits[name], other.logits[name], LOGITS) for name in sorted(mine.logits)]
  found = []
  for name, a, b, tolerance in pairs:
    size = max(1.0, float(np.abs(b).max()))
    off = float(np.abs(a - b).max()) if a.shape == b.shape else float('inf')
    found.append(
      dict(
        of=name, absolute=off, relative=off / size, tolerance=tolerance,
        ok=bool(off <= tolerance * size),
      )
    )  # fmt: skip
  return found
