"""Checkpoints of a run that are found without being read."""

from mutation import mutation

from bertjax.checkpoint import manifest, reading, resume
from bertjax.launch.resumable import finished
from bertjax.machine import durable
from configs import bert


@mutation('if not remote.is_remote(workdir):', 'if True:')
def test_the_newest_checkpoint_of_a_url_is_found(tmp_path):
  """Else what starts runs again until they are finished does it for ever."""
  for step, names in ((8, [manifest.NAME]), (9, []), (10, [manifest.NAME, 'x']), (11, ['x'])):
    (tmp_path / f'checkpoints/{step}').mkdir(parents=True)
    for name in names:
      (tmp_path / f'checkpoints/{step}' / name).write_text('{}')
  config = bert.get_config('test').copy_and_resolve_references().to_dict()
  durable.write_json(tmp_path / 'config.json', dict(format=resume.FORMAT, config=config, facts={}))
  url = f'file://{tmp_path}'
  assert reading.newest_step(url) == 10 and reading.newest_step(f'{url}/none') is None
  assert finished(url, 10) and not finished(url, 12)
