"""The machines and processes of a run: how they find each other and what they tell each other."""
