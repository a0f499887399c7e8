"""The config of a finished or interrupted run as a config file: --config=THIS_FILE:WORKDIR.

`main --evaluate` names it, so that overrides on the command line apply to the run's own config.
"""

from bertjax.checkpoint import resume


def get_config(workdir: str):
  """Returns the config that the run in the workdir was trained with."""
  return resume.stored_config(workdir)
