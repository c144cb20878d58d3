"""Random numbers that know where a value is sharded.

A mask must be the same on ranks that hold the same value and independent on ranks that hold different parts.
There are two ways to get that, `mesh.rng`:

    statistical   each rank draws its own part. The seed depends on the rank's place along the axes that shard the
                  value, and on no other axis. Nothing is drawn in vain; the numbers change with the layout.
    exact         every rank draws the whole mask from one generator and takes its part: the numbers of a
                  single device, whatever the layout. It costs the memory and time of the whole mask.

Nothing here touches torch's default generators but `Stream.as_default`, which puts them back.
"""

import hashlib
from collections import abc
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from graphpar.runtime.axis import Axis
from graphpar.runtime.blocks import Blocks, take

Rng = Literal["statistical", "exact"]
Cut = tuple[int, Axis, Blocks]  # a sharded dimension: dim, axis, blocks


def stream_seed(seed: int, step: int, microbatch: int, place: Mapping[str, int], stage: int = 0) -> int:
    """The seed of a stream: a hash of the arguments. `place` is the rank's index along each sharding axis."""
    # The first stage of a pipeline draws what a program without pipeline does.
    text = repr((seed, step, microbatch, sorted(place.items()), *([stage] if stage else [])))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 1


class Randomness:
    """The generators of one rank. All of them are set by (seed, step, microbatch, stage) alone, so a run can resume."""

    def __init__(
        self, place: Mapping[str, int], device: torch.device, rng: Rng, lock: AbstractContextManager[Any]
    ) -> None:
        self.rng: Rng = rng
        self.device = device
        self.lock = lock  # held while a default generator is borrowed: simulated ranks share them
        self._place = place
        self.now = (0, 0, 0, 0)  # seed, step, microbatch, stage; each time that they are set, another object
        self._streams: dict[tuple[str, ...], Stream] = {}
        self.whole = self.stream(())  # what every rank draws alike

    def stream(self, names: tuple[str, ...]) -> "Stream":
        """The stream for values that are sharded along `names`."""
        if names not in self._streams:
            self._streams[names] = Stream(self, names, Generator(self.device))
        return self._streams[names]

    def seed(self, seed: int, step: int = 0, microbatch: int = 0, stage: int = 0) -> None:
        """Start every stream anew."""
        self.now = (seed, step, microbatch, stage)

    def seed_of(self, names: tuple[str, ...]) -> int:
        """The seed, for now, of values that are sharded along `names`."""
        seed, step, microbatch, stage = self.now
        return stream_seed(seed, step, microbatch, {name: self._place[name] for name in names}, stage)

    def replay(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """Contexts for a forward and for its second run, which then draws the same numbers.

        The second runs as often as it is asked to: a backward in halves computes a forward again for each of them.
        Made for `torch.utils.checkpoint.checkpoint(..., context_fn=mesh.replay, preserve_rng_state=False)`.
        """
        kept: list[dict[Stream, Tensor]] = []

        @contextmanager
        def first() -> abc.Generator[None]:
            kept.append(self.states())
            yield

        return first(), _Again(self, kept)

    def states(self) -> "dict[Stream, Tensor]":
        """Where each stream is."""
        return {stream: stream.private.get_state() for stream in self._streams.values()}


class _Again(AbstractContextManager[None]):
    """Starts the streams where the first run did, and afterwards puts them back."""

    def __init__(self, source: Randomness, kept: "list[dict[Stream, Tensor]]") -> None:
        self._source = source
        self._kept = kept
        self._before: list[dict[Stream, Tensor]] = []

    def __enter__(self) -> None:
        self._before.append(self._source.states())
        _restore(self._kept[0])

    def __exit__(self, *_: object) -> None:
        _restore(self._before.pop())


def _restore(states: "dict[Stream, Tensor]") -> None:
    for stream, state in states.items():
        stream.private.set_state(state)


class Stream:
    """Random numbers for the values that are sharded along certain axes."""

    def __init__(self, source: Randomness, names: tuple[str, ...], generator: Generator) -> None:
        self._source = source
        self._names = names
        self._own = generator
        self._seeded: object = None

    @property
    def private(self) -> Generator:
        """Its own generator. It is seeded when it is asked for: most programs draw nothing, and a hash takes time."""
        if self._seeded is not self._source.now:
            self._seeded = self._source.now
            self._own.manual_seed(self._source.seed_of(self._names))
        return self._own

    @property
    def exact(self) -> bool:
        """Whether the numbers are those of a single device."""
        return self._source.rng == "exact"

    @property
    def generator(self) -> Generator:
        """Where the next number comes from: in exact mode all streams share one generator."""
        return self._source.whole.private if self.exact else self.private

    @contextmanager
    def as_default(self) -> abc.Generator[None]:
        """Let torch's own random functions draw from this stream inside the block.

        In exact mode they draw what each rank holds, and so not what a single device would draw.
        """
        default = _default_generator(self._source.device)
        own = self.generator
        with self._source.lock:
            before = default.get_state()
            default.set_state(own.get_state())
            try:
                yield
            finally:
                own.set_state(default.get_state())
                default.set_state(before)


def _default_generator(device: torch.device) -> Generator:
    if device.type == "cuda":
        return torch.cuda.default_generators[device.index]
    return torch.default_generator


def dropout(x: Tensor, p: float, training: bool, stream: Stream, cut: tuple[Cut, ...] = ()) -> Tensor:
    """X with each element dropped with probability p, the rest scaled by 1 / (1 - p).

    `cut` lists the sharded dimensions, the outermost axis first where several cut one dimension. Exact mode needs it:
    its mask is the one that `F.dropout` would draw for the whole tensor.
    """
    if not training or p == 0:
        return x
    keep = 1.0 - p
    mask = _mask(x, keep, stream, cut)
    return x * mask * (1 / keep if keep else 0.0)


def _mask(x: Tensor, keep: float, stream: Stream, cut: tuple[Cut, ...]) -> Tensor:
    shape = list(x.shape)
    if stream.exact:
        for dim, axis, _ in cut:
            shape[dim] *= axis.size
    # Drawn in the dtype of x, as F.dropout does: the bits that a generator gives depend on it.
    mask = torch.empty(shape, dtype=x.dtype, device=x.device).bernoulli_(keep, generator=stream.generator)
    if stream.exact:
        for dim, axis, blocks in cut:
            mask = take(mask, axis.size, axis.rank, dim, blocks)
    return mask.bool()


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    dropout_p: float,
    training: bool,
    stream: Stream,
    cut: tuple[Cut, ...] = (),
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`F.scaled_dot_product_attention` that drops weights by `stream`; `cut` is that of the [.., q, k] weights.

    In exact mode the weights are computed in the open, so that their mask can be drawn for all heads at once.
    """
    p = dropout_p if training else 0.0
    if p == 0 or not stream.exact:
        fused: Callable[[], Tensor] = lambda: F.scaled_dot_product_attention(  # noqa: E731
            q, k, v, attn_mask=attn_mask, dropout_p=p, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
        )
        if p == 0:
            return fused()
        with stream.as_default():
            return fused()
    if enable_gqa:
        k, v = (t.repeat_interleave(q.shape[-3] // t.shape[-3], -3) for t in (k, v))
    scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
    if attn_mask is not None:
        hidden = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, -torch.inf) if hidden else scores + attn_mask
    return dropout(scores.softmax(-1), p, True, stream, cut) @ v
