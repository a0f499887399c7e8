"""Where the rows of a run come from is chosen by name, also of a module of the user's."""

import types

import jax
import numpy as np
import pytest
from mutation import mutation
from systems import tiny

from bertjax.config import schema
from bertjax.errors import UserError
from bertjax.evals.held_out import rows
from bertjax.examples import readers
from bertjax.train import resolve, setup

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


@mutation('examples.read_by(store, config.model), config.data', 'store, config.data')
@mutation('examples_lib.read_by(held_out, config.model)', 'held_out')
def test_rows_of_a_model_that_reads_backward_go_from_the_end_of_the_text(rich_store):
  config = tiny('ulmfit')
  config.model.backward = True
  config.data.plan.drawn = 0
  spec = resolve.resolve(config)
  store = readers.store.open_store(rich_store)
  turned, end = store.turned(), readers.store.open_store(rich_store / 'heldout').turned()
  first = lambda read, most: read.gather(*np.array([[0], [most]]))[:most]
  token_BT = readers.store.READER.rows(spec.config, store, None)[0].batch(np.arange(1), True)
  most = min(config.length, turned.sentences[1])
  np.testing.assert_array_equal(token_BT['token_BT'][0, :most], first(turned, most))
  subject = types.SimpleNamespace(
    config=spec.config, store=store, held_out=end.turned(), fallback=None
  )
  found = rows._rows(subject, rows.Options(batch_size=1)).batch(np.arange(1), False)
  most = min(config.length, end.sentences[1])
  np.testing.assert_array_equal(found['token_BT'][0, :most], first(end, most))
  config.data.reader = 'seqio'
  with pytest.raises(UserError, match="model.backward=True .* expected config.data.reader='store'"):
    readers.of(config.data).check(config)
