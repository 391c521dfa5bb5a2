"""Layers for kernelize: none; models reach attention through `attention_forward`, by the attention interface."""
