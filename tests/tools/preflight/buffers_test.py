"""The largest arrays of a compiled step, by the code that makes them."""

import textwrap

from mutation import mutation

from bertjax.tools.preflight import buffers
from bertjax.tools.preflight.buffers import Buffer

# ruff: noqa: E501  (lines of a compiler)
PROGRAM = textwrap.dedent("""\
  HloModule jit_train_step

  FileNames
  1 "/home/me/my_script.py"
  2 "/home/me/bertjax/models/layers/basic.py"
  3 "/home/me/site-packages/jax/numpy.py"

  FunctionNames
  1 "<module>"

  FileLocations
  1 {file_name_id=1 function_name_id=1 line=31 end_line=31 column=8 end_column=28}
  2 {file_name_id=2 function_name_id=1 line=99 end_line=99 column=8 end_column=28}
  3 {file_name_id=3 function_name_id=1 line=7 end_line=7 column=8 end_column=28}

  StackFrames
  1 {file_location_id=1 parent_frame_id=1}
  2 {file_location_id=2 parent_frame_id=2}
  3 {file_location_id=3 parent_frame_id=3}

  ENTRY %main (p: f32[4]) -> f32[4] {
    %stack.1 = f32[12,64]{1,0} broadcast(%p), metadata={op_name="jit(step)/ffn_up/dot" stack_frame_id=3}
    %stack.2 = f32[12,64]{1,0} copy(%stack.1), metadata={op_name="jit(step)/ffn_up/dot" stack_frame_id=2}
    %bare.3 = f32[8,8]{1,0} copy(%stack.1)
    ROOT %out.4 = f32[4]{0} copy(%p), metadata={op_name="jit(step)/norm" stack_frame_id=1}
  }
""")
ASSIGNMENT = textwrap.dedent("""\
  BufferAssignment:
  allocation 0: size 99999, page 0, parameter 5, shape |f32[50304,768]| at ShapeIndex {}:
   value: <1 p @0> (size=99999,offset=0): f32[4]{0}
  allocation 1: size 7000, page 0, preallocated-temp:
   value: <2 stack.1 @0> (size=3072,offset=0): f32[12,64]{1,0:T(8,128)}
   value: <3 stack.2{0} @0> (size=3072,offset=3072): f32[12,64]{1,0:T(8,128)}
   value: <4 bare.3 @0> (size=256,offset=6144): f32[8,8]{1,0:T(8,128)}
   value: <5 later.9 @0> (size=512,offset=3000): f32[128]{0:T(128)}
   value: <6 gone.7 @0> (size=128,offset=6400): f32[32]{0:T(128)}
  allocation 2: size 5000, color 1, page 0, preallocated-temp:
   value: <7 out.4 @0> (size=5000,offset=0): f32[4]{0}

  BufferLiveRange:
""")
ALL = [
  Buffer(2, 3072, 'f32[12,64]', 'ffn_up/dot', 'bertjax/models/layers/basic.py:99'),
  Buffer(1, 256, 'f32[8,8]', 'copy', ''),
  Buffer(1, 128, 'f32[32]', 'gone.7', ''),
]


@mutation("    if f'/{_OURS}' in file:\n", '    if file:\n')
@mutation(
  'if any(offset < end and start < offset + size for start, end in taken):',
  'if (offset, offset + size) in taken:',
)
@mutation('size \\d+, (?:page', 'size \\d+,.* (?:page')
def test_the_largest_places_are_named_by_the_code_that_fills_them():
  """Of equal ones the number; without what lies over a larger one, arguments and fast memory."""
  assert buffers.largest(PROGRAM, ASSIGNMENT, 9) == ALL
  assert buffers.largest(PROGRAM, ASSIGNMENT, 1) == ALL[:1]
