"""The account of bytes: exact on programs written by hand, and on one that libtpu compiles."""

import jax
import jax.numpy as jnp
import pytest
from mutation import mutation

from bertjax.bench import topology, traffic

# Three runs of a body that reads one [1, 1024] slice of a stack, calls a kernel and keeps the rest
# on the chip; then a copy to the chip.
PROGRAM = """HloModule test

%pick (p0: f32[3,1024], p1: s32[]) -> f32[1,1024] {
  %p0 = f32[3,1024]{1,0:T(8,128)} parameter(0)
  %p1 = s32[]{:T(128)S(6)} parameter(1)
  %zero = s32[]{:T(128)} constant(0)
  ROOT %slice = f32[1,1024]{1,0:T(8,128)} dynamic-slice(%p0, %p1, %zero), dynamic_slice_sizes={1,1024}
}

%store (p0: f32[3,1024], p1: f32[1,1024], p2: s32[]) -> f32[3,1024] {
  %p0 = f32[3,1024]{1,0:T(8,128)} parameter(0)
  %p1 = f32[1,1024]{1,0:T(8,128)S(1)} parameter(1)
  %p2 = s32[]{:T(128)S(6)} parameter(2)
  %zero = s32[]{:T(128)} constant(0)
  ROOT %update = f32[3,1024]{1,0:T(8,128)} dynamic-update-slice(%p0, %p1, %p2, %zero)
}

%body (t: (s32[], f32[3,1024])) -> (s32[], f32[3,1024]) {
  %t = (s32[]{:T(128)}, f32[3,1024]{1,0:T(8,128)}) parameter(0)
  %i = s32[]{:T(128)} get-tuple-element(%t), index=0
  %stack = f32[3,1024]{1,0:T(8,128)} get-tuple-element(%t), index=1
  %row = f32[1,1024]{1,0:T(8,128)S(1)} fusion(%stack, %i), kind=kLoop, calls=%pick
  %call = f32[1,1024]{1,0:T(8,128)S(1)} custom-call(%row), custom_call_target="tpu_custom_call", backend_config={"custom_call_config":{"body":"","cost_estimate":{"flops":"7","bytes_accessed":"100"}}}
  %new = f32[3,1024]{1,0:T(8,128)} fusion(%stack, %call, %i), kind=kLoop, calls=%store
  ROOT %out = (s32[]{:T(128)}, f32[3,1024]{1,0:T(8,128)}) tuple(%i, %new)
}

%condition (t: (s32[], f32[3,1024])) -> pred[] {
  %t = (s32[]{:T(128)}, f32[3,1024]{1,0:T(8,128)}) parameter(0)
  %three = s32[]{:T(128)} constant(3)
  %i = s32[]{:T(128)} get-tuple-element(%t), index=0
  ROOT %less = pred[]{:T(512)} compare(%i, %three), direction=LT
}

ENTRY %main (x: f32[3,1024], y: bf16[8,128]) -> (s32[], f32[3,1024]) {
  %x = f32[3,1024]{1,0:T(8,128)} parameter(0)
  %y = bf16[8,128]{1,0:T(8,128)(2,1)} parameter(1)
  %zero = s32[]{:T(128)} constant(0)
  %copy-start = (bf16[8,128]{1,0:T(8,128)(2,1)S(1)}, bf16[8,128]{1,0:T(8,128)(2,1)}, u32[]{:S(2)}) copy-start(%y)
  %copy-done = bf16[8,128]{1,0:T(8,128)(2,1)S(1)} copy-done(%copy-start)
  %tanh = bf16[8,128]{1,0:T(8,128)(2,1)} tanh(%copy-done)
  %t = (s32[]{:T(128)}, f32[3,1024]{1,0:T(8,128)}) tuple(%zero, %x)
  ROOT %while = (s32[]{:T(128)}, f32[3,1024]{1,0:T(8,128)}) while(%t), condition=%condition, body=%body
}
"""  # noqa: E501


@mutation(
  'traffic: a scanned body counts once',
  'bertjax/bench/traffic.py',
  'times * part.bytes, pallas',
  'part.bytes, pallas',
)
@mutation(
  'traffic: a slice reads the whole',
  'bertjax/bench/traffic.py',
  "if user.opcode in ('dynamic-slice', 'slice', 'gather') and",
  "if user.opcode in ('slice', 'gather') and",
)
@mutation(
  'traffic: what stays on the chip counts',
  'bertjax/bench/traffic.py',
  "if dims and not re.search(r'S\\([1-9]', layout):",
  'if dims:',
)
def test_counts_a_program_by_hand():
  body = 4096 + 100 + 4096  # the slice, the kernel, the part that is updated
  outside = 2048 + 2048  # the copy's source and what tanh writes
  assert traffic.account(PROGRAM) == traffic.Account(3 * body + outside, 300, 0)


def test_a_loop_that_ends_by_the_data_counts_once_and_is_named():
  found = traffic.account(PROGRAM.replace('direction=LT', 'direction=NE'))
  whole = traffic.account(PROGRAM)
  assert found.open_loops == 1 and found.pallas_bytes * 3 == whole.pallas_bytes
  assert found.bytes < whole.bytes


def test_refuses_what_it_cannot_count():
  with pytest.raises(ValueError, match='expected a cost_estimate'):
    traffic.account(PROGRAM.replace('cost_estimate', 'nothing'))
  with pytest.raises(ValueError, match='ENTRY'):
    traffic.account('HloModule test')


def test_a_scanned_body_counts_as_often_as_it_runs():
  pytest.importorskip('libtpu')
  target = topology.device('v5e')

  def moved(layers: int) -> int:
    def run(x, w):
      return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, w)[0]

    shapes = [jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in ((8, 1024), (layers, 1024, 1024))]
    arguments = topology.on(target, shapes)
    compiled = topology.compile_absent(jax.jit(run).lower(*arguments))
    return traffic.account(compiled.as_text()).bytes

  matrix = 2 * 1024 * 1024
  assert 0.99 < (moved(60) - moved(20)) / (40 * matrix) < 1.1
