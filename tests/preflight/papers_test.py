"""The table of the papers' recipes."""

import itertools

import pytest
from absl import flags
from absl.testing import flagsaver
from mutation import mutation

from bertjax.preflight import papers

SAID = dict(
  phase='phase1', config='bert-large', batch_size=256, length=512, topology='v5e:4x4',
  fits=True, compiled=True,
  hbm_bytes=10 * 2**30, hbm_limit_bytes=int(15.75 * 2**30), estimate_bytes=11 * 2**30,
  bytes_per_token_padded=6_643_210, collectives=[dict(sent_bytes=2**30), dict(sent_bytes=2**20)],
  mfu_bound=0.834, chip_hours=1234.4,
)  # fmt: skip


@mutation(
  'papers: the ratio is of the memory that there is',
  'bertjax/preflight/papers.py',
  '/ said["hbm_bytes"]:.2f}',
  '/ said["hbm_limit_bytes"]:.2f}',
)
@mutation(
  'papers: a row has the changes of all phases',
  'bertjax/preflight/papers.py',
  "if not key.startswith('phases.')]",
  'if key]',
)
@mutation(
  'papers: what each chip sends is the largest part of it',
  'bertjax/preflight/papers.py',
  "sent = sum(each['sent_bytes']",
  "sent = max(each['sent_bytes']",
)
def test_a_row_of_the_table():
  changes = {'mesh.fsdp': 2, 'phases.phase1.microbatches': 8, 'phases.phase2.microbatches': 4}
  assert papers.row(SAID, changes) == (
    'bert-large, mesh.fsdp=2, microbatches=8', '256 x 512', 'v5e:4x4',
    '10.00 of 15.75 GB', '11.00 GB', '1.10', '6,643', '1,025 MB', '83%', '1,234',
  )  # fmt: skip
  full = dict(SAID, fits=False, hbm_bytes=20 * 2**30)
  assert '**20.00 of 15.75 GB**' in papers.row(full, {})
  assert {len(papers.row(each, {})) for each in (SAID, full, full | dict(compiled=False))} == {
    len(papers.HEAD)
  }
  assert 'not in 15.75 GB' in papers.row(full | dict(compiled=False), {})


def test_shapes_say_that_a_recipe_fits():
  only = (paper for paper in papers.PAPERS if paper.file == 'ernie')
  lines = list(itertools.islice(papers.table(only, compiles=False), 3))
  assert len(lines) == 3 and all(fits for _, fits in lines)
  assert lines[2][0].startswith('| ernie-base | 128 x 512 | v5e:4x4 |')


# GB of a chip by libtpu 0.0.52: config, batch -> figure, as in docs/tpu.md.
COMPILED = {
  ('bert-base', '256 x 128'): 2.15,
  ('bert-base', '256 x 512'): 3.66,
  ('bert-large', '256 x 128'): 6.59,
  ('bert-large', '256 x 512'): 10.16,
  ('roberta-base', '8,192 x 512'): 6.03,
  ('bert-lamb-large, microbatches=8', '65,536 x 128'): 8.98,
  ('bert-lamb-large, microbatches=8', '32,768 x 512'): 11.37,
  ('albert-xxlarge', '4,096 x 512'): 13.40,
  ('spanbert-base', '256 x 512'): 3.85,
  ('ernie-base', '128 x 512'): 2.52,
  ('electra-base', '256 x 512'): 3.99,
  ('electra-large', '2,048 x 512'): 8.21,
  ('xlnet-large', '2,048 x 512'): 9.58,
  ('transformer_xl-wt103_large', '128 x 384'): 6.53,
  ('mbert-base, model.vocab_size=119547', '256 x 128'): 3.26,
  ('mbert-base, model.vocab_size=119547', '256 x 512'): 5.18,
  ('xlm-xlm15', '32 x 256'): 4.47,
  ('xlm_r-base', '8,192 x 512'): 8.03,
  ('xlm_r-large, mesh.fsdp=2', '8,192 x 512'): 13.80,
  ('xlm_e-base, model.vocab_size=250002', '2,048 x 1024'): 8.20,
  ('modernbert-base, microbatches=3', '768 x 1024'): 4.84,
  ('modernbert-base, microbatches=3', '1,536 x 1024'): 6.64,
  ('modernbert-base, microbatches=3', '2,304 x 1024'): 8.42,
  ('modernbert-base, microbatches=3', '3,072 x 1024'): 10.06,
  ('modernbert-base, microbatches=3', '3,840 x 1024'): 10.90,
  ('modernbert-base, microbatches=3', '4,608 x 1024'): 12.25,
  ('modernbert-base, microbatches=3', '576 x 8192'): 12.50,
  ('modernbert-large, mesh.data=8, mesh.tensor=2, microbatches=7', '448 x 1024'): 7.73,
  ('modernbert-large, mesh.data=8, mesh.tensor=2, microbatches=21', '1,344 x 1024'): 7.73,
  ('modernbert-large, mesh.data=8, mesh.tensor=2, microbatches=35', '2,240 x 1024'): 7.73,
  ('modernbert-large, mesh.data=8, mesh.tensor=2, microbatches=49', '3,136 x 1024'): 7.74,
  ('modernbert-large, mesh.data=8, mesh.tensor=2, microbatches=63', '4,032 x 1024'): 7.74,
  ('modernbert-large, mesh.data=8, mesh.tensor=2, microbatches=77', '4,928 x 1024'): 7.75,
  ('modernbert-large, mesh.data=8, mesh.tensor=2, microbatches=77', '616 x 8192'): 7.32,
  ('modernbert-large, mesh.data=8, mesh.tensor=2, microbatches=78', '624 x 8192'): 7.32,
}


@pytest.mark.full
@mutation(
  'papers: a turn of the loop over layers takes no room',
  'bertjax/preflight/estimate.py',
  'working = of_rows(traced.turn + traced.wide)',
  'working = 0',
)
def test_shapes_are_within_a_tenth_of_the_compiler_for_every_paper():
  lines = [line for line, _ in papers.table(papers.PAPERS, compiles=False)][2:]
  cells = [line.strip('| ').split(' | ') for line in lines]
  found = {(name, batch): float(gb.split()[0]) for name, batch, _, _, gb, *_ in cells}
  ratios = {key: found[key] / figure for key, figure in COMPILED.items()}
  assert {key: ratio for key, ratio in ratios.items() if not 0.9 <= ratio <= 1.1} == {}


def test_unknown_configs_are_named():
  flags.FLAGS.mark_as_parsed()
  with flagsaver.flagsaver(only=['bertt']), pytest.raises(ValueError, match="did you mean 'bert'"):
    papers.main()
