"""Where the rows of a run come from is chosen by name, also of a module of the user's."""

import jax
import numpy as np
from mutation import mutation
from systems import tiny

from bertjax.config import schema
from bertjax.train import setup

MINE = '''
from bertjax.examples.readers import store


def rows(config, opened, fallback):
  every, held_out = store.READER.rows(config, opened, fallback)

  class First:
    """The first row, again and again."""

    ordered, rows, template = False, 1, every.template
    stats = dict(rows=1)

    def batch(self, row_n, shuffle):
      return every.batch(0 * row_n, shuffle=False)

  return First(), held_out


READER = store.READER._replace(rows=rows)
'''


@mutation('readers.of(config.data).rows(', 'readers.store.READER.rows(')
def test_a_reader_may_be_a_module_of_ones_own(rich_store, tmp_path, monkeypatch):
  (tmp_path / 'my_house').mkdir()
  (tmp_path / 'my_house' / 'first_row.py').write_text(MINE)
  monkeypatch.syspath_prepend(str(tmp_path))
  config = tiny('bert')
  config.data.reader = 'my_house.first_row'
  schema.check(config)
  phase = setup.make_run(config, str(rich_store), jax.devices()[:1]).phases[0]
  tokens = phase.next_batch(0)[0]['token_BT']
  assert len(tokens) > 1 and (tokens == tokens[0]).all() and np.ptp(tokens[0])
