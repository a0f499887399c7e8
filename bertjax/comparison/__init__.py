"""Equal compute: arms on one text, the steps that a budget buys each, their runs, and the page."""
