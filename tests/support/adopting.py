"""What a run has of the models that its config names, before it has a store."""

from bertjax.checkpoint import resume
from bertjax.sources import init_from
from bertjax.train import resolve


def adopt(config, workdir, overrides=None):
  """(resolved config, lines for people, opened `config.init_from`)."""
  spec, source = resolve.begin(config, workdir, overrides=overrides)
  return spec.config, spec.said, source


def claim(workdir, config):
  """Writes config.json of a run that begins with these models; returns its config."""
  spec, _ = resolve.begin(config, workdir)
  resume.claim_workdir(workdir, spec.config, spec.facts.kept())
  return spec.config


def begun(config, vocabulary, variables, source=None):
  """(variables of a run, with those of `config.init_from` in place, lines for people)."""
  load, said = init_from.loader(config, vocabulary, variables, source)
  return load(variables), said
