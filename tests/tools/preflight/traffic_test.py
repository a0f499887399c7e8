"""The account of bytes: exact on programs written by hand, and on one that libtpu compiles."""

import jax
import jax.numpy as jnp
import pytest
from mutation import mutation

from bertjax.tools.preflight import hlo, topology, traffic

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
  %one = s32[]{:T(128)S(6)} constant(1)
  %next = s32[]{:T(128)S(6)} add(%i, %one)
  ROOT %out = (s32[]{:T(128)}, f32[3,1024]{1,0:T(8,128)}) tuple(%next, %new)
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


@mutation('{key: times * value for', '{key: value for')
@mutation("opcode in ('dynamic-slice', 'slice', 'gather') and", "opcode in ('slice', 'gather') and")
@mutation(' if not array.on_chip)', ')')
def test_counts_a_program_by_hand():
  body = 4096 + 100 + 4096  # the slice, the kernel, the part that is updated
  outside = 2048 + 2048  # the copy's source and what tanh writes
  found = traffic.account(PROGRAM)
  assert found.bytes == 3 * body + outside and not found.open_loops
  assert sum(found.by_operation.values()) == found.padded_bytes


# As a GPU's compiler writes: a loop that says its turns, whose fusion reduces two arrays at once to
# two results, and a kernel without an estimate.
ON_GPU = """HloModule on_gpu

%both (a: f32[], b: f32[], c: f32[], d: f32[]) -> (f32[], f32[]) {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  %c = f32[] parameter(2)
  %d = f32[] parameter(3)
  %e = f32[] add(%a, %c)
  %f = f32[] add(%b, %d)
  ROOT %t = (f32[], f32[]) tuple(%e, %f)
}

%sums (p0: f32[8,64], p1: f32[8,64]) -> (f32[64], f32[64]) {
  %p0 = f32[8,64]{1,0} parameter(0)
  %p1 = f32[8,64]{1,0} parameter(1)
  %zero = f32[] constant(0)
  ROOT %r = (f32[64]{0}, f32[64]{0}) reduce(%p0, %p1, %zero, %zero), dimensions={0}, to_apply=%both
}

%body (t: (s32[], f32[8,64])) -> (s32[], f32[8,64]) {
  %t = (s32[], f32[8,64]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %x = f32[8,64]{1,0} get-tuple-element(%t), index=1
  %s = (f32[64]{0}, f32[64]{0}) fusion(%x, %x), kind=kInput, calls=%sums
  %one = f32[64]{0} get-tuple-element(%s), index=0
  %y = f32[8,64]{1,0} custom-call(%x, %one), custom_call_target="__gpu$xla.gpu.triton"
  ROOT %out = (s32[], f32[8,64]{1,0}) tuple(%i, %y)
}

%condition (t: (s32[], f32[8,64])) -> pred[] {
  %t = (s32[], f32[8,64]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  ROOT %less = pred[] fusion(%i), kind=kLoop, calls=%compared
}

ENTRY %main (x: f32[8,64]) -> (s32[], f32[8,64]) {
  %x = f32[8,64]{1,0} parameter(0)
  %zero = s32[] constant(0)
  %t = (s32[], f32[8,64]{1,0}) tuple(%zero, %x)
  ROOT %while = (s32[], f32[8,64]{1,0}) while(%t), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"5"}}
}
"""  # noqa: E501


@mutation("if root.opcode == 'tuple':", 'if False:')
@mutation('return int(said[1])', 'return 1')
def test_counts_a_program_of_a_gpu():
  array, row = 8 * 64 * 4, 64 * 4
  found = traffic.account(ON_GPU.replace('fusion(%i), kind=kLoop, calls=%compared', 'compare(%i)'))
  assert found.bytes == 5 * ((2 * array + 2 * row) + (array + row + array))
  assert found.pallas_bytes == 5 * (array + row + array) and not found.open_loops


# A head of 64 and its row of 3 columns; a copy that turns them; a kernel that reads both; a stack.
PADDED = """HloModule padded

%turn (p0: bf16[16,64]) -> bf16[64,16] {
  %p0 = bf16[16,64]{1,0:T(8,128)(2,1)} parameter(0)
  ROOT %t = bf16[64,16]{1,0:T(8,128)(2,1)} transpose(%p0), dimensions={1,0}
}

%keep (p0: f32[4,256], p1: f32[256], p2: s32[]) -> f32[4,256] {
  %p0 = f32[4,256]{1,0:T(4,128)} parameter(0)
  %p1 = f32[256]{0:T(256)S(1)} parameter(1)
  %p2 = s32[]{:T(128)S(6)} parameter(2)
  %zero = s32[]{:T(128)} constant(0)
  %b = f32[1,256]{1,0:T(1,128)} bitcast(%p1)
  ROOT %u = f32[4,256]{1,0:T(4,128)} dynamic-update-slice(%p0, %b, %p2, %zero)
}

ENTRY %main (q: bf16[16,64], m: s32[3], s: f32[4,256], i: s32[]) -> bf16[64,16] {
  %q = bf16[16,64]{1,0:T(8,128)(2,1)} parameter(0)
  %m = s32[3]{0:T(128)} parameter(1)
  %s = f32[4,256]{1,0:T(4,128)} parameter(2)
  %i = s32[]{:T(128)S(6)} parameter(3)
  %row = f32[256]{0:T(256)S(1)} broadcast(%i), dimensions={}
  %put = f32[4,256]{1,0:T(4,128)} fusion(%s, %row, %i), kind=kLoop, calls=%keep, metadata={op_name="jit(step)/jvp(while)/body/ffn/add"}
  %y = bf16[16,64]{1,0:T(8,128)(2,1)} custom-call(%q, %m), custom_call_target="tpu_custom_call", backend_config={"custom_call_config":{"body":"","cost_estimate":{"flops":"7","bytes_accessed":"8216"}}}, metadata={op_name="jit(step)/transpose(jvp(while))/body/attention/kernel"}
  ROOT %x = bf16[64,16]{1,0:T(8,128)(2,1)} fusion(%y), kind=kLoop, calls=%turn, metadata={op_name="jit(step)/jvp(while)/body/attention/turn"}
}
"""  # noqa: E501


@mutation('sizes[axis] = -(-sizes[axis] // unit) * unit', 'pass')
@mutation('rest = _ESTIMATE.sub(', "rest = re.compile('(no)such').sub(")
def test_counts_what_the_chip_stores():
  head, turned, vector, row = 16 * 64 * 2, 64 * 16 * 2, 3 * 4, 256 * 4
  found = traffic.account(PADDED)
  assert found.bytes == row + 8216 + (head + turned)
  # Lanes are padded to 128: the head's 64, the turned one's 16, the vector's 3.
  head_kept, turned_kept, vector_kept = 16 * 128 * 2, 64 * 128 * 2, 128 * 4
  kernel = round(8216 * (2 * head_kept + vector_kept) / (2 * head + vector))
  assert found.pallas_bytes == kernel
  assert found.copy_bytes == head_kept + turned_kept
  assert found.stacked_bytes == row
  assert found.padded_bytes == row + kernel + head_kept + turned_kept
  assert found.by_operation == {
    'attention/turn': head_kept + turned_kept,
    'backward: attention/kernel': kernel,
    'ffn/add': row,
    'broadcast': 0,
  }


# A product within one fusion, which sees its operands through fusions of its own: the first one
# renamed, of the second one a slice. The first is also renamed alone.
NESTED = """HloModule nested

%rename (p0: bf16[4,8,128]) -> bf16[32,128] {
  %p0 = bf16[4,8,128]{2,1,0:T(8,128)(2,1)} parameter(0)
  ROOT %b = bf16[32,128]{1,0:T(8,128)(2,1)} bitcast(%p0)
}

%product (x: bf16[4,8,128], w: bf16[4,8,128]) -> f32[32,8] {
  %x = bf16[4,8,128]{2,1,0:T(8,128)(2,1)} parameter(0)
  %w = bf16[4,8,128]{2,1,0:T(8,128)(2,1)} parameter(1)
  %zero = s32[]{:T(128)} constant(0)
  %x2 = bf16[32,128]{1,0:T(8,128)(2,1)} fusion(%x), kind=kLoop, calls=%rename
  %w2 = bf16[32,128]{1,0:T(8,128)(2,1)} fusion(%w), kind=kLoop, calls=%rename
  %w3 = bf16[8,128]{1,0:T(8,128)(2,1)} dynamic-slice(%w2, %zero, %zero), dynamic_slice_sizes={8,128}
  ROOT %y = f32[32,8]{0,1:T(8,128)} convolution(%x2, %w3), dim_labels=bf_oi->bf
}

ENTRY %main (x: bf16[4,8,128], w: bf16[4,8,128]) -> f32[32,8] {
  %x = bf16[4,8,128]{2,1,0:T(8,128)(2,1)} parameter(0)
  %w = bf16[4,8,128]{2,1,0:T(8,128)(2,1)} parameter(1)
  %moved = bf16[32,128]{1,0:T(8,128)(2,1)} fusion(%x), kind=kLoop, calls=%rename
  ROOT %y = f32[32,8]{0,1:T(8,128)} fusion(%x, %w), kind=kOutput, calls=%product
}
"""


@mutation("user.opcode == 'bitcast' or _renames(computations, user)", "user.opcode == 'bitcast'")
@mutation('if body[name].root:', 'if False:')
def test_a_fusion_within_a_fusion_reads_what_it_is_given():
  whole, part, product = 4 * 8 * 128 * 2, 8 * 128 * 2, 32 * 8 * 4
  assert traffic.account(NESTED).bytes == 2 * whole + whole + part + product


@pytest.mark.parametrize(
  'shape, expected',
  [
    ('bf16[512,64]{1,0:T(8,128)(2,1)}', 'bf16[512,128]{1,0:T(8,128)(2,1)}'),
    ('bf16[64,500]{0,1:T(8,128)(2,1)}', 'bf16[128,504]{0,1:T(8,128)(2,1)}'),  # the first is minor
    ('f32[77,3,5]{2,1,0:T(4,128)S(1)}', 'f32[77,4,128]{2,1,0:T(4,128)S(1)}'),
    ('f32[]{:T(128)}', 'f32[]{:T(128)}'),
    ('(f32[3]{0}, bf16[2,2])', '(f32[3]{0}, bf16[2,2])'),  # no tiles are named
  ],
)
def test_the_shape_that_is_stored(shape, expected):
  assert hlo.stored(shape) == expected


@mutation("counter.opcode == 'add' else None", 'counter.opcode else None', case='counter')
@pytest.mark.parametrize(
  'edit', [('direction=LT', 'direction=NE'), ('add(%i', 'minimum(%i')], ids=['condition', 'counter']
)
def test_a_loop_that_ends_by_the_data_counts_once_and_is_named(edit):
  found = traffic.account(PROGRAM.replace(*edit))
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
  place = jax.sharding.SingleDeviceSharding(topology.devices('v5e:2x2')[0])

  def moved(layers: int) -> int:
    def run(x, w):
      return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, w)[0]

    shapes = (8, 1024), (layers, 1024, 1024)
    arguments = [jax.ShapeDtypeStruct(s, jnp.bfloat16, sharding=place) for s in shapes]
    compiled = topology.compile_absent(jax.jit(run).lower(*arguments))
    return traffic.account(compiled.as_text()).bytes

  matrix = 2 * 1024 * 1024
  assert 0.99 < (moved(60) - moved(20)) / (40 * matrix) < 1.1
