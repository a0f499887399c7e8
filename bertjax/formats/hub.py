"""Uploads an exported directory, where `huggingface_hub` is installed and logged in."""

import pathlib

from bertjax.errors import UserError


def check(name: str) -> None:
  """Refuses what cannot be uploaded, before anything is computed. Raises UserError: no OWNER/NAME,
  huggingface_hub is not installed, or nobody is logged in."""
  if len(name.split('/')) != 2 or not all(name.split('/')):
    raise UserError(f'--push={name}: expected OWNER/NAME')
  try:
    import huggingface_hub
  except ImportError as error:
    raise UserError('--push needs huggingface_hub: pip install huggingface_hub') from error
  if huggingface_hub.get_token() is None:
    raise UserError('--push: nobody is logged in; run `hf auth login` first')


def push(directory: pathlib.Path, name: str) -> str:
  """Uploads a directory to OWNER/NAME, which is made if it is not there; returns its address."""
  import huggingface_hub

  api = huggingface_hub.HfApi()
  api.create_repo(name, exist_ok=True)
  api.upload_folder(folder_path=directory, repo_id=name)
  return f'https://huggingface.co/{name}'
