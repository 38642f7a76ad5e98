"""The torch trainer: one optimizer step for each step of the protocol, on a model folder of this machine."""
