"""Services that get a run's metrics: `config.trackers` names modules here, or of the user's own.

A module exports TRACKER: a function (run name, config, workdir, id) -> `Tracker`, where id is what
the tracker of the run had before, '' in a new run. It raises ImportError where its package is not
installed.
"""
