"""The kernel bench: what it times has been checked, and what does not compile has a reason."""

import forks
import jax
import jax.numpy as jnp
import pytest
from mutation import mutation
from processes import ROOT, environment

from bertjax.kernels import relative_attention
from bertjax.kernels.relative_attention import arg_specs, reference, xla_chunked
from bertjax.tools.bench.parts import kernel_time, passes

SMALL = dict(small=arg_specs.Shape(2, 8, 0, 2, 8, 'causal'))


def arguments(shape):
  return jax.jit(lambda: passes.arguments(shape, jnp.float32))()


def test_flops_are_those_of_the_visible_pairs():
  causal = arg_specs.Shape(3, 4, 2, 5, 16, 'causal')
  pairs = 3 * 5 * (3 + 4 + 5 + 6)
  assert passes.flops(causal) == 3 * 2 * 2 * 16 * pairs
  assert passes.flops(causal._replace(table='past')) == 3 * 3 * 2 * 16 * pairs
  assert passes.flops(causal._replace(table='past', bias=True)) == passes.flops(causal)


def test_every_float_has_a_gradient_of_its_shape():
  shape = arg_specs.SHAPES['xlnet_base_content']
  given = jax.eval_shape(lambda: passes.arguments(shape, jnp.float32))
  y, slopes = jax.eval_shape(passes.forward_backward(relative_attention.relative_attention), *given)
  x, _ = given
  names = (x.q_BTNH, x.k_BSNH, x.v_BSNH, x.relative.r_RNH, x.relative.u_NH, x.relative.w_NH,
           x.relative.segment.z_NH, x.relative.segment.embedding_2NH)  # fmt: skip
  assert y.shape == x.q_BTNH.shape
  assert sorted(s.shape for s in slopes) == sorted(n.shape for n in names)


@mutation('if not errors[impl] < TOLERANCE[dtype]:', 'if False:')
def test_a_wrong_implementation_is_not_timed(monkeypatch):
  monkeypatch.setitem(kernel_time.PRODUCT, 'cpu', 64)
  rate, first, second = kernel_time.rows(SMALL, ['reference', 'xla'], 'float32', calls=2)
  assert rate['matmul_flops_per_second'] > 0
  assert first['impl'] == 'reference' and first['speedup'] == 1.0
  assert second['median_s'] > 0 and second['error'] < 1e-4
  wrong = lambda x: reference.attend(x._replace(q_BTNH=x.q_BTNH * 1.5))
  monkeypatch.setattr(xla_chunked, 'attend', wrong)
  _, first, _ = kernel_time.rows(SMALL, ['reference', 'xla'], 'float32', calls=2)
  assert first['impl'] == 'xla' and 'differs from the reference' in first['reason']


@mutation('if _IMPLS.value is not None:', 'if False:')
def test_tiles_are_of_the_kernel_of_this_device():
  command = ('kernel', '--mode=tune', '--impls=xla')
  done = forks.run('bertjax.bench', *command, cwd=ROOT, env=environment())
  assert done.returncode and '--impls=xla: --mode=tune has the kernel of this' in done.stderr


def test_default_names_what_none_means():
  x, _ = arguments(SMALL['small'])
  with relative_attention.default('nothing'), pytest.raises(ValueError, match="got 'nothing'"):
    relative_attention.relative_attention(*x)
  assert relative_attention.relative_attention(*x).shape == x.q_BTNH.shape
