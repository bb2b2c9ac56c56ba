"""Llama models in the sizes that people use, as plain data: Levanter is not needed to plan with them.

The names of Marin's sizes count the parameters with a vocabulary of 128,256 tokens, most of which are in the embeddings
of small models. `llama_3_2_1b` and the larger ones have the shapes of the models that Meta has published.
"""

from dataclasses import replace

from marin_rules.pipeline.training.model import LlamaConfig

# Trained on a CPU within minutes, with a small vocabulary: nothing is computed twice, and no layer looped over.
llama_tutorial = LlamaConfig(
    max_seq_len=128,
    hidden_dim=128,
    intermediate_dim=336,
    num_layers=4,
    num_heads=4,
    num_kv_heads=2,
    gradient_checkpointing=False,
    scan_layers=False,
)
llama_nano = LlamaConfig(
    max_seq_len=512, hidden_dim=32, intermediate_dim=128, num_layers=2, num_heads=2, num_kv_heads=2
)
llama_30m = LlamaConfig(
    max_seq_len=1024, hidden_dim=128, intermediate_dim=448, num_layers=4, num_heads=2, num_kv_heads=2
)
llama_50m = LlamaConfig(
    max_seq_len=1024, hidden_dim=192, intermediate_dim=448, num_layers=4, num_heads=2, num_kv_heads=2
)
llama_75m = LlamaConfig(
    max_seq_len=1024, hidden_dim=256, intermediate_dim=896, num_layers=8, num_heads=4, num_kv_heads=4
)
llama_150m = LlamaConfig(
    max_seq_len=1024, hidden_dim=512, intermediate_dim=1792, num_layers=6, num_heads=8, num_kv_heads=8
)
llama_300m = LlamaConfig(
    max_seq_len=1024, hidden_dim=768, intermediate_dim=2688, num_layers=12, num_heads=12, num_kv_heads=12
)
llama_600m = LlamaConfig(
    max_seq_len=1024, hidden_dim=1024, intermediate_dim=3584, num_layers=24, num_heads=16, num_kv_heads=8
)
llama_1_4b = LlamaConfig(
    max_seq_len=4096, hidden_dim=2048, intermediate_dim=7168, num_layers=16, num_heads=16, num_kv_heads=8
)

llama_3_2_1b = LlamaConfig(
    max_seq_len=4096,
    hidden_dim=2048,
    intermediate_dim=8192,
    num_layers=16,
    num_heads=32,
    num_kv_heads=8,
    tie_word_embeddings=True,
    rope="llama3",
)
llama_3_2_3b = replace(llama_3_2_1b, hidden_dim=3072, num_layers=28, num_heads=24, head_dim=128)
llama_8b = LlamaConfig(
    max_seq_len=4096,
    hidden_dim=4096,
    intermediate_dim=14336,
    num_layers=32,
    num_heads=32,
    num_kv_heads=8,
    rope="llama3",
)
llama_13b = LlamaConfig(
    max_seq_len=4096, hidden_dim=5120, intermediate_dim=13824, num_layers=40, num_heads=40, num_kv_heads=40
)
llama_70b = replace(llama_8b, hidden_dim=8192, intermediate_dim=28672, num_layers=80, num_heads=64)
