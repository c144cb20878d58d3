"""How fast generated programs are next to what people write by hand: `python -m tools.bench`.

One GPT, written for one device (`gpt.py`), is compiled for two ranks, written again by hand (`megatron.py`), and given
to torch's own tensor parallelism (`dtensor.py`) and data parallelism. All of them must give the loss and the gradients
of one device (`check.py`) before their steps are timed, in turn, in one run (`measure.py`).
"""
