"""Stacks of blocks, scanned over their layers: all alike, in a pattern, or sharing parameters;
where a text is written they run one by one."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bertjax.errors import UserError, choose
from bertjax.kernels import target
from bertjax.kernels.dropout import Noise
from bertjax.models.layers import remat as remat_lib
from bertjax.models.layers.block import Block, Context
from bertjax.models.layers.cache import Caches, Reading
from bertjax.types import Array, Variables

# Parts of a layer that layers may share alone; a norm goes with the part before it.
PARTS = dict(attention=('attention', 'attention_norm'), ffn=('ffn_up', 'ffn_down', 'ffn_norm'))
Sharing = Literal['none', 'all', 'attention', 'ffn']


def unrolled(remat: str, noise: Noise | None) -> bool:
  """Returns whether the compiler sees the layers of a scan one after the other. A loop copies what
  each layer keeps for the backward pass into an array of all layers, and out of it: a fifth of the
  bytes of BERT's step on a GPU (docs/gpu.md) and on a TPU, a seventh of its time on a CPU. A model
  is trained where it gets noise. A TPU's compiler takes three times as long without a loop, so only
  a v6e goes without, which waits for its memory most (docs/tpu.md). A CPU's compiler would undo
  what is computed again."""
  trains = noise is not None
  match target.platform():
    case 'gpu':
      return True
    case 'tpu':
      return trains and target.kind() == 'TPU v6 lite'
    case _:
      return trains and remat == 'none'


def scanned(model: Any, block: type[nn.Module], noise: Noise | None) -> Any:
  """Returns the class of a stack of blocks: one scan of `model.layers` over (x, what all get,
  noise, memory, number of the layer), whose derivative keeps what `model.remat` says; `noise` as it
  will get it. Memories have their layers on axis 1, outputs and parameters on axis 0."""
  apart = unrolled(model.remat, noise)
  return nn.scan(
    remat_lib.module(block, model.remat, apart),
    unroll=apart,
    variable_axes={'params': 0},
    split_rngs={'params': True},
    in_axes=(nn.broadcast, nn.broadcast, 1, 0),  # pyright: ignore[reportArgumentType]
    out_axes=(1, 0),  # pyright: ignore[reportArgumentType]
    length=model.layers,
    metadata_params={nn.PARTITION_NAME: 'layers'},
    # The check traces a block once more, which no step needs. Initial values are drawn as with it.
    check_constancy_invariants=model.is_initializing(),
  )


def unstacked(variables: Variables) -> Variables:
  """Returns variables in which each stack of parameters, a subtree named 'layers', is a tuple of
  one tree a layer, as `one_by_one` reads it. A loop over layers copies the parameters of each
  before it multiplies by them, for which a text that is written would wait at every token (LOG.md,
  2026-11-27)."""

  def parts(params: Any, name: str) -> Any:
    if not isinstance(params, Mapping):
      return params
    return _layers(params) if name == 'layers' else {k: parts(v, k) for k, v in params.items()}

  return dict(variables, params=parts(nn.meta.unbox(variables['params']), ''))


def _layers(stack: Any) -> tuple[Any, ...]:
  """Returns the parameters of each layer of a stack."""
  leaves, treedef = jax.tree.flatten(stack)
  return tuple(treedef.unflatten(p) for p in zip(*map(jnp.unstack, leaves), strict=True))


def one_by_one(
  layers: Sequence[Any], block: Block, x_BTD: Array, context: Any, caches: Sequence[Any]
) -> tuple[Array, tuple[Any, ...]]:
  """Runs a block with the parameters of one layer after the other, of `unstacked` variables, and
  the layer's cache. Returns the output of the last, and the new caches; with a `Reading`, the
  output of its last column alone. With a `Context` caches are None, before and after."""
  assert isinstance(layers, tuple), 'expected the variables that for_writing gives'
  new = []
  for number, (params, cache) in enumerate(zip(layers, caches, strict=True)):
    if isinstance(context, Reading) and number == len(caches) - 1:
      context = context._replace(last_only=True)
    run = functools.partial(block.apply, {'params': params})
    x_BTD, (cache, _) = run(x_BTD, context, None, cache, jnp.int32(number))
    new.append(cache)
  return x_BTD, tuple(new)


def ended(hidden_LBTD: Array, last_BTD: Array) -> Array:
  """Returns the outputs of a stack's layers, the last one's as its norm leaves it."""
  return jnp.concatenate([hidden_LBTD[:-1], last_BTD[None]])


class Encoder(nn.Module):
  """A stack of `Block` without memory."""

  layers: int  # L
  remat: str  # policy for the parts of a layer that the backward pass keeps, a `Remat`
  layer: dict[str, Any]  # the fields of the block
  # the parameters that layers have in common, a `Sharing` (Lan et al. 2020). 'none': every leaf is
  # under 'layers' and has a leading axis of that name. Parts that all layers share are under
  # 'shared' instead, without that axis.
  sharing: str = 'none'
  # groups, inner_groups: of 'all'. Layer l visits group l * groups // layers, and each visit runs
  # the group's inner_groups blocks one after the other (google-research/albert, modeling.py). Of
  # several blocks in all, each leaf is one stack under 'layers', group by group.
  groups: int = 1
  inner_groups: int = 1
  # of each layer, which of several contexts it gets, such as windows and global attention in turn;
  # (): there is one context
  kinds: tuple[int, ...] = ()
  normed_stream: bool = False  # with kinds, layer 0 `enters`
  block: type[Block] = Block  # one of another kind has neither kinds nor parameters in common

  @nn.compact
  def __call__(
    self,
    x_BTD: Array,
    contexts: Any,  # what the block takes, a Context or a Reading; with kinds one of each
    noise: Noise | None,
    caches: Caches | None = None,
    hidden: bool = False,
  ) -> tuple[Array, Any]:
    """Returns the last block's output, and with `hidden` every block's, or None. With a `Reading`,
    which takes `unstacked` variables, returns the new caches in their place."""
    stack = self.get_variable('params', 'layers')
    if isinstance(stack, tuple) or isinstance(contexts, Reading):
      assert noise is None and not (hidden or self.kinds) and self.sharing == 'none'
      block = self.block(**self.layer, parent=None)
      return one_by_one(stack, block, x_BTD, contexts, caches or (None,) * self.layers)
    layer = dict(self.layer, hidden=hidden)
    if self.kinds:
      return self._in_turn(layer, x_BTD, tuple(contexts), noise)
    if self.sharing != 'none':
      return self._shared(layer, x_BTD, contexts, noise)
    stack = scanned(self, self.block, noise)(**layer, name='layers')
    x_BTD, (_, hidden_LBTD) = stack(x_BTD, contexts, noise, None, jnp.arange(self.layers))
    return x_BTD, hidden_LBTD

  def _in_turn(
    self, fields: dict[str, Any], x_BTD: Array, contexts: tuple[Context, ...], noise: Noise | None
  ):
    """Scans the periods of the pattern, behind the layers before the first."""
    lead, period = pattern(self.kinds, int(self.normed_stream))
    apart = unrolled(self.remat, noise)
    first = Block(**fields, enters=self.normed_stream, parent=None)
    later = Block(**fields, parent=None)
    stack = self.param('layers', stacked, initial(later, x_BTD, contexts[0]), self.layers)

    def apply(layer: Block, x_BTD: Array, params: Any, number: Any, kind: int) -> tuple[Array, Any]:
      run = lambda p, x: layer.apply({'params': p}, x, contexts[kind], noise, None, number)
      x_BTD, (_, h_BTD) = remat_lib.function(run, self.remat, apart)(params, x_BTD)
      return x_BTD, h_BTD

    def one_period(x_BTD: Array, inputs):
      params, number, hidden = *inputs, []
      for i in range(period):
        mine = jax.tree.map(lambda leaf, i=i: leaf[i], params)
        x_BTD, h_BTD = apply(later, x_BTD, mine, number + i, self.kinds[lead + i])
        hidden.append(h_BTD)
      return x_BTD, hidden

    outputs = []
    for i in range(lead):
      mine = jax.tree.map(lambda leaf, i=i: leaf[i], stack)
      x_BTD, h_BTD = apply(later if i else first, x_BTD, mine, jnp.int32(i), self.kinds[i])
      outputs.append(h_BTD if h_BTD is None else jnp.expand_dims(h_BTD, 0))
    if lead == self.layers:  # a scan of no periods would still be traced
      return x_BTD, (jnp.concatenate(outputs) if later.hidden else None)
    rest = jax.tree.map(lambda leaf: leaf[lead:].reshape(-1, period, *leaf.shape[1:]), stack)
    numbers = jnp.arange(lead, self.layers, period)
    x_BTD, hidden = jax.lax.scan(one_period, x_BTD, (rest, numbers), unroll=apart)
    if not later.hidden:
      return x_BTD, None
    return x_BTD, jnp.concatenate([*outputs, _in_order(hidden, x_BTD)])

  def _shared(self, fields: dict[str, Any], x_BTD: Array, context: Context, noise: Noise | None):
    """Returns a scan over the visits of each group. What they share is a constant of the scan, so
    its transpose adds up the gradients of the visits, and no layer has a copy."""
    layer = Block(**fields, parent=None)
    blocks, each = self._parameters(initial(layer, x_BTD, context))
    run = lambda params, *args: layer.apply({'params': params}, *args)
    apart = unrolled(self.remat, noise)
    apply = remat_lib.function(run, self.remat, apart)
    # Exact, where the original's int(l / layers * groups) and transformers' int(l / (layers /
    # groups)) are rounded otherwise in some odd cases, first at 22 layers in 22 groups, 18 in 14.
    group_L, outputs = np.arange(self.layers) * self.groups // self.layers, []
    for group in range(self.groups):
      inner = blocks[group * self.inner_groups :][: self.inner_groups]
      first = jnp.asarray(np.flatnonzero(group_L == group) * self.inner_groups)

      def visit(x_BTD: Array, inputs, inner=inner):
        hidden, (number, mine) = [], inputs
        for place, params in enumerate(inner):
          whole = {**params, **mine}
          x_BTD, (_, h_BTD) = apply(whole, x_BTD, context, noise, None, number + place)
          hidden.append(h_BTD)
        return x_BTD, hidden

      x_BTD, hidden = jax.lax.scan(visit, x_BTD, (first, each), unroll=apart)
      if layer.hidden:
        outputs.append(_in_order(hidden, x_BTD))
    return x_BTD, (jnp.concatenate(outputs) if outputs else None)

  def _parameters(self, init: Callable[[Array], Any]) -> tuple[list[Any], Any]:
    """Declares the parameters, `init` being that of one layer. Returns what each block shares
    between its visits, group by group, and the stack of the parts that every layer has for
    itself."""

    def some(key: Array, names: Sequence[str]):
      params = init(key)
      return {name: params[name] for name in names}

    every = [name for part in PARTS.values() for name in part]
    if self.sharing != 'all':
      common = PARTS[self.sharing]
      own = [name for name in every if name not in common]
      shared = self.param('shared', some, common)
      return [shared], self.param('layers', stacked, lambda k: some(k, own), self.layers)
    copies = self.groups * self.inner_groups
    if copies == 1:
      return [self.param('shared', some, every)], {}
    stack = self.param('layers', stacked, lambda k: some(k, every), copies)
    return list(_layers(stack)), {}


def initial(layer: Block, x_BTD: Array, context: Any) -> Callable[[Array], Any]:
  """Returns the function of a key that makes the parameters of one layer."""
  return lambda key: layer.init(key, x_BTD, context, None, None, jnp.int32(0))['params']


def stacked(key: Array, init: Callable[[Array], Any], copies: int) -> Any:
  """Returns the parameters of so many layers, in front of which stands the axis of layers: `init`
  makes those of one."""
  params = jax.vmap(init)(jax.random.split(key, copies))
  return nn.meta.add_axis(params, 0, {nn.PARTITION_NAME: 'layers'})


def _in_order(hidden: Sequence[Array], x_BTD: Array) -> Array:
  """Outputs of a scan's visits, one array a place: [L, B, T, D]."""
  return jnp.stack(hidden, 1).reshape(-1, *x_BTD.shape)


def pattern(kinds: Sequence[int], least: int = 0) -> tuple[int, int]:
  """Returns the shortest way to write kinds as a beginning of `least` layers or more and
  repetitions of a period: the lengths of both. [0, 1, 1, 0, 1, 1, 0] is (1, 3) for least=1."""
  count = len(kinds)
  fitting = [
    (lead + period, lead, period)
    for lead in range(least, count)
    for period in range(1, count - lead + 1)
    if (count - lead) % period == 0
    and all(kinds[i] == kinds[i + period] for i in range(lead, count - period))
  ]
  return min(fitting)[1:] if fitting else (count, 1)


def check_sharing(sharing: str, layers: int, groups: int, inner_groups: int) -> None:
  """Raises UserError for an unknown sharing, groups where layers share no whole blocks, or more
  groups than layers, some of which no layer would visit."""
  choose(sharing, get_args(Sharing), 'config.model.sharing')
  if sharing != 'all' and (groups, inner_groups) != (1, 1):
    raise UserError(
      "config.model.groups and inner_groups are read with config.model.sharing='all' only, got "
      f'sharing={sharing!r}, groups={groups}, inner_groups={inner_groups}: set both to 1'
    )
  if not 1 <= groups <= layers or inner_groups < 1:
    raise UserError(
      f'config.model.groups must be from 1 to layers={layers} and inner_groups at least 1, got '
      f'{groups} and {inner_groups}'
    )
