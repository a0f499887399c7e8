"""The estimate from shapes beside the compiler, for the recipes of papers on slices of TPUs."""

import importlib

import pytest
from mutation import mutation

from bertjax.config import presets, sections
from bertjax.tools.preflight import checking

# No number but 1 divides all batches of the recipe: each phase has parts of as many tokens.
PARTS = dict(
  batch1=7, batch2=21, batch3=35, batch4=49, batch5=63, batch6=77, batch7=77, context1=77,
  context2=78,
)  # fmt: skip
MODERNBERT_LARGE = {
  'mesh.data': 8, 'mesh.tensor': 2,
  **{f'phases.{phase}.microbatches': parts for phase, parts in PARTS.items()},
}  # fmt: skip
# Config, slice, changes, and GiB of a chip by libtpu 0.0.52 of each batch, as in docs/tpu.md.
PAPERS = (
  ('bert:base', '4x4', {}, {'256 x 128': 2.15, '256 x 512': 3.66}),
  ('bert_lamb:large', '16x16', dict(microbatches=8), {'65536 x 128': 8.98, '32768 x 512': 11.37}),
  ('albert:xxlarge', '16x16', {}, {'4096 x 512': 13.40}),
  ('ernie:base', '4x4', {}, {'128 x 512': 2.52}),
  ('electra:large', '16x16', {}, {'2048 x 512': 8.21}),
  ('xlnet:large', '16x16', {}, {'2048 x 512': 9.58}),
  ('transformer_xl:wt103_large', '4x4', {}, {'128 x 384': 6.53}),
  ('mbert:base', '4x4', {'model.vocab_size': 119_547}, {'256 x 128': 3.26, '256 x 512': 5.18}),
  ('xlm:xlm15', '4x4', {}, {'32 x 256': 4.47}),
  ('xlm_r:large', '16x16', {'mesh.fsdp': 2}, {'8192 x 512': 13.80}),
  ('xlm_e:base', '16x16', {'model.vocab_size': 250_002}, {'2048 x 1024': 8.20}),
  (
    'modernbert:base', '8x8', dict(microbatches=3),
    {
      '768 x 1024': 4.84, '1536 x 1024': 6.64, '2304 x 1024': 8.42, '3072 x 1024': 10.06,
      '3840 x 1024': 10.90, '4608 x 1024': 12.25, '576 x 8192': 12.50,
    },
  ),
  (
    'modernbert:large', '4x4', MODERNBERT_LARGE,
    {
      '448 x 1024': 7.73, '1344 x 1024': 7.73, '2240 x 1024': 7.73, '3136 x 1024': 7.74,
      '4032 x 1024': 7.74, '4928 x 1024': 7.75, '616 x 8192': 7.32, '624 x 8192': 7.32,
    },
  ),
)  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize('name, chips, changes, compiled', PAPERS, ids=lambda each: str(each)[:26])
@mutation('working = of_rows(traced.turn + traced.wide)', 'working = 0')
def test_shapes_are_within_a_tenth_of_the_compiler(name, chips, changes, compiled):
  file, size = name.split(':')
  config = importlib.import_module(f'configs.{file}').get_config(size)
  sections.complete(config)
  config.preset = 'tpu'
  config.update_from_flattened_dict(changes)
  presets.apply(config, changes, {})
  found = {}
  for phase in checking.phases(config, None, None):
    said = checking.check(phase, f'v5e:{chips}', compiles=False)
    assert said['fits']
    found[f'{said["batch_size"]} x {said["length"]}'] = said['estimate_bytes'] / 2**30
  assert found == pytest.approx(compiled, rel=0.1)
