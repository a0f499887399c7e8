"""The table of the papers' recipes."""

import itertools

from mutation import mutation

from bertjax.preflight import papers

SAID = dict(
  config='bert-large', batch_size=256, length=512, topology='v5e:4x4', fits=True, compiled=True,
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
  'papers: what each chip sends is the largest part of it',
  'bertjax/preflight/papers.py',
  "sent = sum(each['sent_bytes']",
  "sent = max(each['sent_bytes']",
)
def test_a_row_of_the_table():
  assert papers.row(SAID, dict(microbatches=8)) == (
    'bert-large, microbatches=8', '256 x 512', 'v5e:4x4', '10.00 of 15.75 GB', '11.00 GB', '1.10',
    '6,643', '1,025 MB', '83%', '1,234',
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
