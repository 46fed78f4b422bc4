"""best_generation: the GPUs, their number, clock, batch and precision that serve a language model best."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ..errors import InputError, JoulecastError, unknown_name
from ..hardware import GPU
from ..hardware import gpus as catalogue
from ..progress import paced
from ..queries.evaluation import clock_grid_mhz, prefetch
from ..queries.objectives import Tariff
from ..units import number, si
from .choices import GenerationChoice, GenerationChoices
from .decoder import Decoder
from .deployment import Deployment, checked_batching, checked_load, checked_precisions
from .engines import Engine, find_engine
from .figures import Figures, figures_of
from .lengths import Lengths, Tokens
from .models import find_decoder
from .parallel import Parallel, find_gpus, layouts
from .sampling import checked_sampling
from .server import Server
from .serving import Load

if TYPE_CHECKING:
    from ..extraction.sources import Model

OBJECTIVES = ("energy", "time", "cost", "carbon")
"""Joules per output token, seconds per output token, and price and grams of CO2 per million output tokens."""

BATCHES = (1, 4, 16, 32, 64, 128, 256, 512)
"""Batches that are compared unless others are asked for; beside them their doubles, up to the largest that fits."""
CLOCKS = 8
"""Clocks of each GPU that are compared unless others are asked for."""

_MILLION = 1e6


_LIMITED = {
    "time_to_first_token_s": "time to the first token",
    "time_per_output_token_s": "time per output token",
    "tokens_per_s": "tokens",
}


@dataclass(frozen=True)
class Limits:
    """Limits that a way to serve a model has to keep; None for no limit.

    Args:
        time_to_first_token_s: Largest number of seconds from the arrival of a request to its first token.
        time_per_output_token_s: Largest mean number of seconds from one token of a request to the next.
        tokens_per_s: Smallest number of output tokens per second, of all requests together.
    """

    time_to_first_token_s: float | None = None
    time_per_output_token_s: float | None = None
    tokens_per_s: float | None = None

    def keeps(self, figures: Figures) -> Sequence[bool]:
        """Whether the figures are within the limits, for each clock."""
        kept = np.ones(len(figures.tokens_per_s), dtype=bool)
        for name, limit in vars(self).items():
            if limit is not None:
                values = getattr(figures, name)
                kept &= values >= limit if name == "tokens_per_s" else values <= limit
        return [bool(each) for each in kept]

    def reachable(self, seen: Sequence[Figures]) -> str:
        """What can be reached of each limit at best, each alone; empty without limits, or if nothing was predicted."""
        best = []
        for name, limit in vars(self).items():
            if limit is not None and seen:
                values = np.concatenate([getattr(figures, name) for figures in seen])
                most = name == "tokens_per_s"
                text = f"at most {number(values.max())} a second" if most else f"at least {si(values.min(), 's')}"
                best.append(f"{_LIMITED[name]}: {text}")
        return "; ".join(best)


def best_generation(
    model: Model,
    *,
    prompt_tokens: Tokens,
    output_tokens: Tokens,
    objective: str = "energy",
    gpus: str | GPU | Iterable[str | GPU] | None = None,
    counts: Iterable[int] = (1,),
    batches: Iterable[int] | None = None,
    precisions: Iterable[str] = ("bf16",),
    clocks: Iterable[float] | None = None,
    engine: str = "vllm",
    cache_precision: str | None = None,
    power_limit_w: float | None = None,
    max_time_to_first_token_s: float | None = None,
    max_time_per_output_token_s: float | None = None,
    min_tokens_per_s: float | None = None,
    price_per_hour: float | Mapping[str, float] | None = None,
    price_per_kwh: float | None = None,
    carbon: float | str | None = None,
) -> GenerationChoices:
    """Choose how to serve a language model: the best layout, clock, batch and precision of each GPU, best first.

    GPUs without enough memory, without the precision, or outside a limit are left out; the result's `left_out` says
    why.

    Args:
        model: Name of a language model, a configuration of transformers, the path of its config.json, or its module.
        prompt_tokens: Tokens of each prompt: an int, a pair (mean, standard deviation), or an array with the length of
            each request.
        output_tokens: Tokens that the model generates for each prompt, in the same forms.
        objective: energy, time, cost or carbon, each per output token; the lowest value is best.
        gpus: Names, aliases or files of GPUs, or "2x H100 SXM"; None for the whole catalogue.
        counts: Numbers of GPUs to compare, for names without a number. Each number is tried in all layouts: tensor
            parallelism, for models with experts also expert parallelism with and without data-parallel attention, and
            replicas.
        batches: Numbers of sequences that run at a time on all GPUs, to choose from; None for those from 1 to the
            largest that fits.
        precisions: Precisions of the weights, to choose from.
        clocks: Graphics clocks in MHz, to choose from; None for eight of each GPU, its default among them.
        engine: Name of an engine in `joulecast.generation.engines.ENGINES`, such as vllm.
        cache_precision: fp8 for keys and values; None for 16 bits.
        power_limit_w: Power cap of a board in watts; None for each board's default. Boards whose highest limit is lower
            keep that one.
        max_time_to_first_token_s: Largest number of seconds that a request may wait for its first token.
        max_time_per_output_token_s: Largest mean number of seconds from one token of a request to the next.
        min_tokens_per_s: Smallest number of output tokens per second, of all requests together.
        price_per_hour: Price of an hour of any GPU, or a mapping from GPU to price; GPUs without a price are left out.
        price_per_kwh: Price of a kilowatt-hour of electricity, in the same currency.
        carbon: Intensity of the grid in grams of CO2 per kWh, or a country such as "DE": its yearly average.

    Raises:
        UnknownNameError: No such model, GPU, engine, precision, objective or country.
        InputError: A number that cannot be, or no GPU serves the model within the limits, or prompt and output are
            longer than the model's context.

    Examples:
        >>> ways = best_generation("llama3_8b", prompt_tokens=300, output_tokens=300, gpus=["H100 SXM", "L40S"])
        >>> [way.gpu for way in ways]
        ['NVIDIA H100 80GB HBM3', 'NVIDIA L40S']
    """
    if objective not in OBJECTIVES:
        raise unknown_name("objective", objective, OBJECTIVES)
    tariff = Tariff.of(price_per_hour, price_per_kwh, carbon)
    _refuse_without(objective, tariff)
    asked, decoder = find_engine(engine), find_decoder(model)
    found = replace(asked, sampling=checked_sampling(None, asked, decoder))
    prompt, output = Lengths.of("prompt_tokens", prompt_tokens), Lengths.of("output_tokens", output_tokens)
    load = checked_load(decoder, 1, prompt, output, checked_batching(None, found))
    query = _Query(
        model,
        decoder,
        found,
        cache_precision,
        load,
        None if batches is None else tuple(replace(load, batch=batch) for batch in sorted(set(batches))),
        None if clocks is None else tuple(clocks),
        power_limit_w,
    )
    limits = Limits(max_time_to_first_token_s, max_time_per_output_token_s, min_tokens_per_s)
    rows: list[GenerationChoice] = []
    left_out: dict[str, str] = {}
    seen: list[Figures] = []
    asked_gpus = list(named(gpus, tuple(counts)))
    for precision in dict.fromkeys(precisions):
        for count in sorted({count for count, _ in asked_gpus}):
            boards = [gpu for number, gpu in asked_gpus if number == count]
            for served, clocks_mhz, figures in query.figures(boards, count, precision, left_out):
                seen.append(figures)
                rows += _rows(served, clocks_mhz, figures, limits, objective, tariff)
    if not rows:
        raise _nothing_serves(query.decoder.name, _left_out(asked_gpus, rows, left_out), limits.reachable(seen))
    return GenerationChoices(rows, _left_out(asked_gpus, rows, left_out))


def _left_out(
    named: Iterable[tuple[int, GPU]], rows: Iterable[GenerationChoice], reasons: Mapping[str, str]
) -> dict[str, str]:
    """GPUs with their number -> why none of the rows is of them.

    Args:
        named: The GPUs that were compared, each with its number.
        rows: The ways within the limits.
        reasons: GPUs with their number -> why some way to use them is none, such as a batch beyond their memory.
    """
    chosen = {row.boards for row in rows}
    found = {boards: reason for boards, reason in reasons.items() if boards not in chosen}
    for boards in (served_by(count, gpu) for count, gpu in named):
        if boards not in chosen:
            found.setdefault(boards, "outside a limit, or without a price, at all clocks and batches")
    return found


def _nothing_serves(model: str, left_out: Mapping[str, str], reachable: str) -> InputError:
    """Build the error for a model that no GPU serves within the limits."""
    return InputError(
        f"no GPU serves {model} under these conditions",
        given="; ".join(f"{boards}: {reason}" for boards, reason in list(left_out.items())[:5]),
        allowed=reachable or None,
        hint="give other GPUs, counts or batches, or wider limits",
    )


def served_by(count: int, gpu: GPU) -> str:
    """The GPUs with their number, written as in `GenerationChoice.boards`."""
    return f"{count}x {gpu.name}" if count > 1 else gpu.name


@dataclass(frozen=True)
class _Query:
    """The part of a query that does not depend on the GPU."""

    model: Model
    decoder: Decoder
    engine: Engine
    cache_precision: str | None
    one: Load
    loads: tuple[Load, ...] | None
    clocks: tuple[float, ...] | None
    power_limit_w: float | None

    def figures(
        self, boards: Sequence[GPU], count: int, precision: str, left_out: dict[str, str]
    ) -> Iterator[tuple[Deployment, Sequence[float], Figures]]:
        """The figures of each GPU in each layout with each batch that fits, at its clocks.

        Args:
            boards: The GPUs.
            count: Number of each.
            precision: Precision of the weights.
            left_out: GPUs with their number -> reason; those that cannot serve the model are added.
        """
        precisions = checked_precisions(precision, self.cache_precision, self.engine)
        batching = checked_batching(None, self.engine)
        servers: list[tuple[Server, list[Deployment]]] = []
        ways = ((gpu, parallel) for gpu in boards for parallel in layouts(count, gpu, self.decoder))
        for gpu, parallel in ways:
            try:
                whole = Deployment.of(self.decoder, gpu, self.engine, precisions, parallel, batching, self.one)
                gpu.running_precision(precisions.products)
                server = Server.of(self.model, whole, self.power_limit_w, None)
                servers.append((server, [replace(whole, total_load=load) for load in self._loads(whole)]))
            except JoulecastError as error:
                left_out.setdefault(served_by(count, gpu), error.what)
        alike_by: dict[tuple[Parallel, bool], list[tuple[Server, list[Deployment]]]] = {}
        for server, fitting in servers:
            served = server.deployment
            alike_by.setdefault((served.parallel, served.engine.grouped_experts), []).append((server, fitting))
        for alike in alike_by.values():
            yield from self._alike(alike, left_out)

    def _alike(
        self, servers: Sequence[tuple[Server, list[Deployment]]], left_out: dict[str, str]
    ) -> Iterator[tuple[Deployment, Sequence[float], Figures]]:
        """The same for GPUs that run the same operations, which are predicted for all of them at once."""
        one, count = servers[0][0], servers[0][0].deployment.parallel.gpus
        # The largest batch of each GPU is its own, so its steps are predicted on this GPU alone.
        asked = dict.fromkeys(
            one.padded(tokens)
            for _, fitting in servers
            for served in (fitting if len(servers) == 1 else fitting[:-1] or fitting)
            for tokens in served.steps
        )
        steps = one.networks(asked)
        if self.engine.fused:
            prefetch([server.predictor for server, _ in servers], steps.together)
        for server, fitting in servers:
            try:
                server.take(steps)
                clocks = self._clocks_mhz(server.gpu)
                for served in paced(fitting):
                    yield served, clocks, figures_of(served, server, clocks)
            except JoulecastError as error:
                left_out.setdefault(served_by(count, server.gpu), error.what)

    def _loads(self, whole: Deployment) -> list[Load]:
        """The loads to compare in a layout, smallest first: each of its groups of GPUs has a sequence, and all fit."""
        groups, most = whole.parallel.groups, whole.largest_batch
        if self.loads is None:
            doubles = (BATCHES[-1] << times for times in range(1, most.bit_length()))
            batches = {*BATCHES, *doubles, most}
            loads = [replace(self.one, batch=batch) for batch in sorted(batches) if groups <= batch <= most]
        else:
            loads = [load for load in self.loads if groups <= load.batch <= most]
        if not loads:
            replace(whole, total_load=self.loads[0] if self.loads else self.one).refuse_shortage()
            raise InputError(
                "there are fewer sequences than groups of GPUs that serve them",
                given=f"batches up to {max(load.batch for load in self.loads or (self.one,))}",
                allowed=f"{groups} or more",
            )
        return loads

    def _clocks_mhz(self, gpu: GPU) -> list[float]:
        if self.clocks is None:
            return [float(clock) for clock in clock_grid_mhz(gpu, CLOCKS)]
        return [gpu.checked_clock_mhz(clock) for clock in self.clocks]


def named(names: str | GPU | Iterable[str | GPU] | None, counts: Sequence[int]) -> Iterator[tuple[int, GPU]]:
    """Each GPU with the numbers of GPUs to try.

    Raises:
        UnknownNameError: No such GPU.
    """
    listed = [names] if isinstance(names, str | GPU) else list(catalogue().values() if names is None else names)
    for name in listed:
        number, gpu = find_gpus(name)
        for count in counts if number == 1 else (number,):
            yield count, gpu


def _refuse_without(objective: str, tariff: Tariff) -> None:
    if objective == "cost" and not tariff.has_prices:
        raise InputError(
            "the objective cost needs prices", given="none", allowed="price_per_hour, price_per_kwh, or both"
        )
    if objective == "carbon" and tariff.carbon_g_per_kwh is None:
        raise InputError(
            "the objective carbon needs the carbon intensity of the grid",
            given="none",
            allowed="carbon: grams of CO2 per kWh, or a country such as DE",
        )


def _rows(
    served: Deployment,
    clocks_mhz: Sequence[float],
    figures: Figures,
    limits: Limits,
    objective: str,
    tariff: Tariff,
) -> Iterator[GenerationChoice]:
    gpu, count, parallel = served.gpu.name, served.parallel.gpus, served.parallel
    for place, kept in enumerate(limits.keeps(figures)):
        joules = float(figures.energy_per_token_j[place])
        seconds = float(figures.time_per_output_token_s[place])
        rate = float(figures.tokens_per_s[place])
        cost = tariff.cost(count * _MILLION / rate, _MILLION * joules, gpu)
        grams = tariff.carbon_g(_MILLION * joules)
        # A single token has no time from one to the next.
        waits = seconds or float(figures.latency_s[place])
        value = {"energy": joules, "time": waits, "cost": cost, "carbon": grams}[objective]
        if kept and value is not None:
            yield GenerationChoice(
                gpu=gpu,
                gpus=count,
                tensor_parallel=parallel.tensor,
                expert_parallel=parallel.expert,
                replicas=parallel.replicas,
                precision=served.precisions.weights,
                batch=served.total_load.batch,
                clock_mhz=clocks_mhz[place],
                time_to_first_token_s=float(figures.time_to_first_token_s[place]),
                time_per_output_token_s=seconds,
                latency_s=float(figures.latency_s[place]),
                tokens_per_s=rate,
                power_w=float(figures.power_w[place]),
                energy_per_token_j=joules,
                value=value,
                cost_per_million_tokens=cost,
                carbon_g_per_million_tokens=grams,
            )
