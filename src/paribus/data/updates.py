"""How many optimiser updates a token budget takes. Apart from the batches: what only reads runs loads no tokenizer."""


def updates_of(budget_tokens: int, batch_tokens: int) -> int:
    """Batches, and so optimiser updates, that a budget takes: the fewest whole ones that hold it. Both in tokens."""
    return -(-budget_tokens // batch_tokens)
