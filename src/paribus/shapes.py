"""The axis legend. One name per kind of tensor; the string is the order of its axes.

batch        sequences in the (micro-)batch
time         positions in a sequence
key          positions that queries may read: the same, and those before them where rows are continued
asked        positions whose logits are wanted
head         attention heads of a projection (query heads, or the fewer key-value heads)
kv_head      key-value heads
group        query heads that share one key-value head, neighbours in the query's order (1 without grouped queries)
head_width   width of one head
width        width of the stream
source       depth sources that a read mixes, oldest first
query        pseudo-queries of one depth read
vocab        token ids
"""

from jaxtyping import Bool, Float, Int
from torch import Tensor

Tokens = Int[Tensor, "batch time"]
Documents = Int[Tensor, "batch time"]
TokenWeights = Float[Tensor, "batch time"]
TokenLosses = Float[Tensor, "batch time"]
Stream = Float[Tensor, "batch time width"]
Heads = Float[Tensor, "batch time head head_width"]
KvHeads = Float[Tensor, "batch time kv_head head_width"]
GroupedHeads = Float[Tensor, "batch time kv_head group head_width"]
GroupValues = Float[Tensor, "batch time kv_head 1 head_width"]
PerHead = Float[Tensor, "batch time kv_head group"]
Logits = Float[Tensor, "batch time vocab"]
AllowedPairs = Bool[Tensor, "batch time time"]
Keys = Float[Tensor, "batch key kv_head head_width"]
ReadPairs = Bool[Tensor, "#batch time key"]
AskedStream = Float[Tensor, "batch asked width"]
Vector = Float[Tensor, " width"]
Queries = Float[Tensor, "query width"]
DepthScores = Float[Tensor, "batch time query source"]
DepthWeights = Float[Tensor, "query batch time source"]
InverseRms = Float[Tensor, "batch time 1"]
Matrices = Float[Tensor, "matrix row column"]
