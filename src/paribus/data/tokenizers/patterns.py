"""Split patterns of published tokenizers: how text is cut into words before merging."""

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""also what `ByteLevel` with `use_regex` does"""
NANOCHAT = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
"""at commit 92d63d4 (2026-07-03)"""
GPT4 = NANOCHAT.replace("{1,2}", "{1,3}")
"""cl100k"""
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")

KNOWN = frozenset({GPT2, NANOCHAT, GPT4, LLAMA3, QWEN2})
"""Every text is matched from end to end by each; `chunks` says where they end a token."""
