"""Questions on texts: from the scores of tokens to answers, and from answers to SQuAD's scores."""
