"""Examples that people have labelled: `config.data.reader='labelled'`.

Each kind of task is a module here, `config.data.task.name`, and exports it as TASK.
"""
