"""Runs that learn from another: their teacher, the recipe of a student, and their first steps."""

import importlib

import cases
import jax
from systems import tiny

from bertjax.config import sections
from bertjax.sources import runs
from bertjax.train import setup


def write_teacher(workdir, store, seed, system='bert', begun=True, **fields):
  """A run of a system and its workdir; `fields` are of its config. Its parameters are those that it
  begins with, or any, which nothing compiles."""
  run = setup.make_run(tiny(system, seed=seed, **fields), str(store), jax.devices()[:1])
  if begun:
    params = jax.jit(lambda: run.phases[0].initial_variables(seed))()['params']
  else:
    params = cases.random_params(run.abstract.variables['params'], 0.1)
  runs.write_run(workdir, run.config, params, run.vocabulary, {})
  return workdir


def recipe(name, source):
  """The config of 'NAME:SIZE' of configs/distill, complete, with 8 rows a step and the teacher's
  source; relations have as many heads as there are in both."""
  name, _, size = name.partition(':')
  c = importlib.import_module(f'configs.distill.{name}').get_config(size or None)
  sections.complete(c)
  c.batch_size = 8
  if 'teacher' in c.objective:
    c.objective.teacher.source = str(source)
  if 'relation_heads' in c.objective and c.objective.relation_heads:
    c.objective.relation_heads = 16
  return c


def student(name, store, source, total_steps, model, **fields):
  """A `recipe` that learns from the text of a store, judged at its end by a few rows."""
  c = recipe(name, source)
  c.update(dict(length=64, total_steps=total_steps, log_steps=1))
  c.update(dict(eval_steps=total_steps, checkpoint_steps=total_steps))
  c.model.update(dict(heads=8) | model)
  c.data.store = str(store)
  if 'min_tokens' in c.data.plan:
    c.data.plan.min_tokens = 5
  c.evals.held_out.update(dict(batch_size=8, examples=8))
  if 'pseudo_perplexity' in c.evals:
    c.evals.pseudo_perplexity.rows = 0
  c.update_from_flattened_dict(fields)
  return c
