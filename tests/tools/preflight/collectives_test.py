"""What is sent between chips, of programs written by hand; train/collectives_test has steps that
XLA compiles."""

from mutation import mutation

from bertjax.tools.preflight import traffic
from bertjax.tools.preflight.collectives import Collective, collectives

MESH = dict(data=2, fsdp=2, tensor=2)
PROGRAM = """HloModule test

%sum (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %s = f32[] add(%x, %y)
}

%body (t: (s32[], f32[64])) -> (s32[], f32[64]) {
  %t = (s32[], f32[64]) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %x = f32[64] get-tuple-element(%t), index=1
  %part = f32[32] reduce-scatter(%x), replica_groups=[4,2]<=[4,2], dimensions={0}, to_apply=%sum
  %start = (f32[32], f32[64]) all-gather-start(%part), replica_groups=[4,2]<=[4,2], dimensions={0}
  %whole = f32[64] all-gather-done(%start)
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  ROOT %out = (s32[], f32[64]) tuple(%next, %whole)
}

%condition (t: (s32[], f32[64])) -> pred[] {
  %t = (s32[], f32[64]) parameter(0)
  %three = s32[] constant(3)
  %i = s32[] get-tuple-element(%t), index=0
  ROOT %less = pred[] compare(%i, %three), direction=LT
}

ENTRY %main (a: f32[64], b: bf16[8,8]) -> f32[64] {
  %a = f32[64] parameter(0)
  %b = bf16[8,8] parameter(1)
  %zero = s32[] constant(0)
  %t = (s32[], f32[64]) tuple(%zero, %a)
  %loop = (s32[], f32[64]) while(%t), condition=%condition, body=%body
  %x = f32[64] get-tuple-element(%loop), index=1
  %moved = bf16[8,8] collective-permute(%b), source_target_pairs={{0,4},{4,0},{1,5},{5,1}}
  %alone = f32[64] all-reduce(%x), replica_groups={{0},{1},{2},{3},{4},{5},{6},{7}}, to_apply=%sum
  ROOT %y = f32[64] all-reduce(%alone), replica_groups=[2,4]<=[2,2,2]T(1,0,2), to_apply=%sum
}
"""


@mutation('counts[key] += times', 'counts[key] += 1')
@mutation('int(n) for n in counted[4].split', "int(n) for n in '0,1,2'.split")
def test_counts_a_program_by_hand():
  found = {(c.kind, c.axes): c for c in collectives(PROGRAM, MESH)}
  expected = [
    # Groups of chips 0 1 4 5: fsdp alone is the same for all of them.
    Collective('all-reduce', ('data', 'tensor'), 4, 'f32', 1, 256),
    Collective('reduce-scatter', ('tensor',), 2, 'f32', 3, 3 * 256),
    Collective('all-gather', ('tensor',), 2, 'f32', 3, 3 * 256),
    Collective('collective-permute', ('data',), 2, 'bf16', 1, 128),
  ]
  assert found == {(c.kind, c.axes): c for c in expected}
  sent = {kind: c.sent_bytes for (kind, _), c in found.items()}
  assert sent == {
    'all-reduce': 2 * 256 * 3 / 4, 'reduce-scatter': 384, 'all-gather': 384,
    'collective-permute': 128,
  }  # fmt: skip


# A gather that runs beside two products, and a reduce-scatter, as libtpu writes them.
ASYNC = """HloModule test

%begin (p: bf16[8,64]) -> (bf16[8,64], bf16[64,64], u32[]) {
  %p = bf16[8,64]{1,0:T(8,128)(2,1)} parameter(0)
  %g1 = bf16[64,64]{1,0:T(8,128)(2,1)} all-gather(%p), channel_id=1, replica_groups=mesh['a'=2,'b'=4] {'b'}, dimensions={0}, backend_config={"async_collective_fusion_config":{"flag_end":"-1"}}
  ROOT %start = (bf16[8,64]{1,0:T(8,128)(2,1)}, bf16[64,64]{1,0:T(8,128)(2,1)}, u32[]{:S(2)}) custom-call(%g1), custom_call_target="AsyncCollectiveStart"
}

%beside (p: bf16[8,64], x: bf16[64,64]) -> bf16[64,64] {
  %p = bf16[8,64]{1,0:T(8,128)(2,1)} parameter(0)
  %x = bf16[64,64]{1,0:T(8,128)(2,1)} parameter(1)
  %g2 = bf16[64,64]{1,0:T(8,128)(2,1)} all-gather(%p), channel_id=1, replica_groups=mesh['a'=2,'b'=4] {'b'}, dimensions={0}, backend_config={"async_collective_fusion_config":{"flag_end":"8"}}
  ROOT %y = bf16[64,64]{1,0:T(8,128)(2,1)} tanh(%x)
}

%all-reduce-scatter.2 (p: bf16[64,64]) -> bf16[64,16] {
  %p = bf16[64,64]{1,0:T(8,128)(2,1)} parameter(0)
  %r = bf16[64,64]{1,0:T(8,128)(2,1)} all-reduce(%p), replica_groups={{0,1,2,3}}
  %zero = u32[] constant(0)
  ROOT %part = bf16[64,16]{1,0:T(8,128)(2,1)} dynamic-slice(%r, %zero, %zero), dynamic_slice_sizes={64,16}
}

ENTRY %main (w: bf16[8,64], x: bf16[64,64]) -> bf16[64,16] {
  %w = bf16[8,64]{1,0:T(8,128)(2,1)} parameter(0)
  %x = bf16[64,64]{1,0:T(8,128)(2,1)} parameter(1)
  %begun = (bf16[8,64]{1,0:T(8,128)(2,1)}, bf16[64,64]{1,0:T(8,128)(2,1)}, u32[]{:S(2)}) fusion(%w), kind=kCustom, calls=%begin
  %y = bf16[64,64]{1,0:T(8,128)(2,1)} fusion(%w, %x), kind=kOutput, calls=%beside
  ROOT %out = bf16[64,16]{1,0:T(8,128)(2,1)} fusion(%y), kind=kCustom, calls=%all-reduce-scatter.2
}
"""  # noqa: E501


@mutation("elif 'async_collective_fusion_config' in x.rest and not starts:", 'elif False:')
@mutation('slice(None) if axis in within else 0', 'slice(None)')
def test_counts_what_runs_beside_computations_where_it_starts():
  gathered = Collective('all-gather', ('tensor',), 4, 'bf16', 1, 64 * 64 * 2)
  scattered = Collective('reduce-scatter', ('tensor',), 4, 'bf16', 1, 64 * 64 * 2)
  found = collectives(ASYNC, dict(data=2, tensor=4))
  assert sorted(found) == [gathered, scattered]
  matrix = 64 * 64 * 2
  whole = traffic.account(ASYNC)
  # Begun: a part is read, the whole is written. Beside it: one product, and the part is an operand
  # again. Then the reduction.
  assert whole.bytes == (matrix // 8 + matrix) + (matrix // 8 + 2 * matrix) + (matrix + matrix // 4)


STARTED = """HloModule started

ENTRY %main (x: f32[1024,256]) -> f32[128,256] {
  %x = f32[1024,256]{1,0} parameter(0)
  %s = ((f32[1024,256]{1,0}), f32[128,256]{1,0}) reduce-scatter-start(%x), replica_groups=[1,8]<=[8], dimensions={0}, to_apply=%sum
  ROOT %y = f32[128,256]{1,0} reduce-scatter-done(%s)
}
"""  # noqa: E501


@mutation("x.opcode != 'all-reduce-start'", "x.opcode == 'all-gather-start'")
def test_what_starts_is_counted_without_its_operand():
  (found,) = collectives(STARTED, dict(data=8))
  assert found.bytes == 1024 * 256 * 4
