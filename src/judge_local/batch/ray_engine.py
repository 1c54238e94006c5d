"""The Ray engine: the rows of a batch judged by actors on many machines, the results written where the batch was started.

* The driver is the batch that everyone knows: it reads the rows, and it alone writes the results file. Ray Data stands
  where a local model would: a stream of parcels goes through `map_batches` with one actor class, and outcomes come back.
* An actor loads the model once. It takes the machine's engine lock while it computes, as every process of ours does, so
  there is one actor for each machine unless more are asked for.
* An actor that dies costs its machine's share of time: Ray starts it again and its parcel is judged anew, three times at
  most. Whatever is carried twice is written once.
* The model must lie on every machine under the same name, and be the same file: its hash is compared with the driver's.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pickle
import platform
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from judge_local import sync
from judge_local.batch.judging import Judging
from judge_local.batch.parcels import STARTS, Outcome, Parcels, Post, given_up, judge_parcel
from judge_local.batch.rows import Row
from judge_local.cache import JsonCache
from judge_local.errors import ClusterError, JudgeLocalError, ModelFileError, UsageError, excerpt
from judge_local.providers.base import InferenceProvider
from judge_local.results import Result

if TYPE_CHECKING:
    import pyarrow

LOCAL: Final = "local"
"""The address that means: start Ray on this machine, and end it again."""
_STORE_BYTES: Final = 128 * 2**20
"""Of Ray's object store when it is started here. What is in it at a time are the rows in work."""
_LAST_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteWork:
    """What an actor has to know, all of it picklable. Made by `remote_work`."""

    make: Callable[[], InferenceProvider]
    """Makes the judge, on the machine where it is to be."""
    judging: Judging
    model: str
    """Provider and model, as the header of the results says."""
    model_sha256: str | None
    cache: str | None
    version: str
    """Of judge-local on the driver."""


def remote_work(
    make: Callable[[], InferenceProvider],
    judging: Judging,
    provider: InferenceProvider,
    *,
    cache: str | None = None,
) -> RemoteWork:
    """What actors have to know to judge as `judging` says.

    Args:
        make: makes the judge; picklable.
        judging: how rows are judged.
        provider: the driver's own, which every actor's must equal.
        cache: a folder that is the same on all machines.
    """
    from judge_local import __version__

    header = judging.header(provider)
    # A read-only mapping cannot travel.
    plain = json.loads(json.dumps(dict(judging.schema), default=dict))
    return RemoteWork(
        make=make,
        judging=replace(judging, schema=plain, machine=dict(judging.machine)),
        model=header.model,
        model_sha256=header.model_sha256,
        cache=None if cache is None else os.path.abspath(cache),  # noqa: PTH100 # A link stays as it is elsewhere.
        version=__version__,
    )


class RayJudge:
    """What runs in each actor: one loaded model, and the parcels that come by. Picklable as a class.

    Args:
        work: what to do.
        begin: told the number of a parcel before it is judged; gives how many times it has been begun.
    """

    def __init__(self, work: RemoteWork, begin: Callable[[int], int]) -> None:
        self._work, self._begin = work, begin
        self._provider: InferenceProvider | None = None
        self._fault: JudgeLocalError | None = None
        try:
            self._provider = self._load()
        except JudgeLocalError as error:  # Every row says so, and the first ends the batch.
            self._fault = _of_this_machine(error)

    def outcomes(self, number: int, rows: Sequence[Row]) -> list[Outcome]:
        """Judge the parcel `number`."""
        if self._fault is not None or self._provider is None:
            return [self._fault or ClusterError("ray", "there is no judge")] * len(rows)
        if self._begin(number) > STARTS:
            return given_up(rows)
        judging = self._work.judging
        cache = None if self._work.cache is None else JsonCache(self._work.cache)
        judge_row = judging.judge_row(self._provider, cache=cache)
        return sync.run(judge_parcel(rows, judge_row, at_once=judging.at_once))

    def __call__(self, batch: pyarrow.Table) -> pyarrow.Table:
        """Ray Data's door: a table of parcels goes in, a table of outcomes comes out."""
        import pyarrow

        numbers, answers = [], []
        for number, parcel in zip(*(batch[name].to_pylist() for name in ("number", "parcel")), strict=True):
            numbers.append(number)
            answers.append(pickle.dumps(self.outcomes(number, pickle.loads(parcel))) if parcel else b"")
        return pyarrow.table({"number": numbers, "outcomes": pyarrow.array(answers, pyarrow.binary())})

    def _load(self) -> InferenceProvider:
        from judge_local import __version__

        if __version__ != self._work.version:
            raise ClusterError(
                "judge-local",
                f"this is version {__version__}, and the batch was started by {self._work.version}",
                "Install the same on all machines.",
            )
        provider = self._work.make()
        header = self._work.judging.header(provider)
        if (header.model, header.model_sha256) != (self._work.model, self._work.model_sha256):
            raise ModelFileError(
                header.model,
                f"its sha256 is {header.model_sha256}, and that of {self._work.model} here was "
                f"{self._work.model_sha256}",
                "Put the same file on all machines.",
            )
        facts = getattr(provider, "facts", None)
        if facts is not None:
            sync.run(facts())  # A model that cannot be used is refused before the first row.
        return provider


def _of_this_machine(error: JudgeLocalError) -> JudgeLocalError:
    """`error`, whose text says on which machine it happened."""
    if error.args and isinstance(error.args[0], str):
        error.where = f"{platform.node()}: {error.where}"
        error.args = (error.where, *error.args[1:])
    return error


class RayEngine:
    """The judges of a batch on a Ray cluster. Connect first, then use it as an `async with` context.

    Args:
        work: what they do.
        address: of a cluster; `local` starts one on this machine, which ends with the context. Where this process is
            connected to a cluster already, that one is used, and stays connected.
        actors: how many there are; None is one for each machine of the cluster.
        on_event: gets lines for a person.

    Raises:
        UsageError: Ray is not installed.
        ClusterError: there is no cluster at that address, or it does not start.
    """

    def __init__(
        self,
        work: RemoteWork,
        *,
        address: str = LOCAL,
        actors: int | None = None,
        on_event: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self._ray = _import_ray()
        self._work = work
        self._ours = not self._ray.is_initialized()
        if self._ours:
            if address == LOCAL:
                on_event("starting Ray on this machine")
            _connect(self._ray, address, actors)
        machines = sum(
            1 for node in self._ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1
        )
        self.actors = actors or max(1, machines)
        """How many actors there are."""
        on_event(
            f"{self.actors} actor{'s' if self.actors > 1 else ''} on {machines} machine{'s' if machines > 1 else ''}"
        )
        self._parcels: Parcels | None = None
        self._thread: threading.Thread | None = None
        self._post: Any = None

    @property
    def at_once(self) -> int:
        """How many rows in work keep all actors busy."""
        return self._open.at_once

    async def judge_row(self, row: Row) -> Result:
        """Have `row` judged by one of the actors.

        Raises:
            JudgeLocalError: the fault that came back.
            ClusterError: the cluster is gone.
        """
        return await self._open.judge_row(row)

    async def __aenter__(self) -> RayEngine:
        loop = asyncio.get_running_loop()
        # Beside the driver, and in need of nothing: it holds the rows in work, and no more.
        here = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            self._ray.get_runtime_context().get_node_id(), soft=True
        )
        self._post = self._ray.remote(num_cpus=0, scheduling_strategy=here)(Post).remote()
        self._parcels = Parcels(self._send, judges=self.actors)
        self._thread = threading.Thread(target=self._stream, args=(loop,), name="ray", daemon=True)
        self._thread.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.aclose(at_once=kind is not None)

    async def aclose(self, *, at_once: bool = False) -> None:
        """End the actors, and Ray.

        Args:
            at_once: without waiting for the actors to end by themselves.
        """
        parcels, post, thread = self._parcels, self._post, self._thread
        self._parcels = self._post = self._thread = None
        if parcels is not None and post is not None and thread is not None:
            post.end.remote()
            if not at_once and not parcels.away:
                await asyncio.to_thread(thread.join, _LAST_SECONDS)
        if self._ours:
            # Not in another thread: Ray has a word to say about that.
            self._ray.shutdown()

    @property
    def _open(self) -> Parcels:
        if self._parcels is None:
            raise UsageError("RayEngine", "it is not open", "Use it as an `async with` context.")
        return self._parcels

    def _send(self, number: int, rows: Sequence[Row]) -> None:
        self._post.put.remote(number, pickle.dumps(list(rows)))

    def _arrived(self, number: int, answer: bytes) -> None:
        if self._parcels is not None and answer:
            self._parcels.arrived(number, pickle.loads(answer))
            self._post.answered.remote(number)

    def _ended(self, error: Exception | None) -> None:
        if self._parcels is not None:
            said = "it ended before all rows were back" if error is None else excerpt(_last_line(error))
            self._parcels.fail(
                ClusterError(
                    "ray",
                    f"the cluster gave up: {said}",
                    "What was written is whole; the same command goes on from there.",
                )
            )

    def _stream(self, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread of its own: have Ray Data carry parcels to the actors, until the post has no more."""
        ended: Exception | None = None
        try:
            for number, answer in _answers(self._post, self._work, self.actors):
                loop.call_soon_threadsafe(self._arrived, number, answer)
        except Exception as error:  # noqa: BLE001 # It is told to every row that is away.
            ended = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._ended, ended)


def _answers(post: Any, work: RemoteWork, actors: int) -> Iterator[tuple[int, bytes]]:
    """The answer to each parcel, as it comes."""
    import ray.data

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    # A parcel is a row of Ray's, and is carried as soon as it is there.
    context.target_max_block_size = 1
    # A model may take longer to load, and an answer to come, than Ray thinks anything should.
    context.execution_no_progress_timeout_s = -1
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    begin = _Begin(post)
    wants_gpu = work.judging.machine.get("gpuLayers") != 0
    gpus = ray.cluster_resources().get("GPU", 0) if wants_gpu else 0
    answers = ray.data.read_datasource(_parcel_source(post), num_cpus=0, override_num_blocks=1).map_batches(
        RayJudge,
        fn_constructor_args=(work, begin),
        batch_size=None,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(size=actors, max_tasks_in_flight_per_actor=2),
        num_cpus=1,
        num_gpus=1 if gpus >= actors else None,
    )
    for batch in answers.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
        yield from zip(*(batch[name].to_pylist() for name in ("number", "outcomes")), strict=True)


class _Begin:
    """Tells the post that a parcel is begun, and waits for the count."""

    def __init__(self, post: Any) -> None:
        self._post = post

    def __call__(self, number: int) -> int:
        import ray

        return int(ray.get(self._post.begin.remote(number)))


def _parcel_source(post: Any) -> Any:
    """Ray Data's view of the post: one reading task, which goes on as long as there are parcels."""
    import pyarrow
    import ray
    from ray.data import Datasource
    from ray.data.block import BlockMetadata
    from ray.data.datasource import ReadTask

    def read() -> Iterator[pyarrow.Table]:
        number = 0
        while (parcel := ray.get(post.get.remote(number))) is not None:
            yield pyarrow.table({"number": [number], "parcel": pyarrow.array([parcel], pyarrow.binary())})
            number += 1

    class Parcelled(Datasource):  # type: ignore[misc] # Ray's classes are not typed for us.
        def estimate_inmemory_data_size(self) -> None:
            return None

        def get_read_tasks(self, parallelism: int, *_: Any, **__: Any) -> list[Any]:
            nothing = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)
            return [ReadTask(read, nothing)]

    return Parcelled()


def _import_ray() -> Any:
    # The C++ side writes straight to standard error, and what it calls errors there are mostly hints.
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        import ray
        import ray.data
        import ray.util.scheduling_strategies
    except ImportError as error:
        raise UsageError(
            "--engine ray", f"Ray is not installed ({error})", "Install it: pip install 'judge-local[ray]'"
        ) from None
    return ray


def _connect(ray: Any, address: str, actors: int | None) -> None:
    from judge_local.models.hardware import usable_cores

    here: dict[str, Any] = {}
    if address == LOCAL:
        here = {
            "num_cpus": max(usable_cores(), actors or 1),
            "object_store_memory": _STORE_BYTES,
            "include_dashboard": False,
        }
    on_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **here)
    except Exception as error:
        raise ClusterError(
            "ray",
            f"no cluster at {address!r}: {excerpt(_last_line(error))}",
            "Is it running, with the same version of Ray and Python? `ray status` says so.",
        ) from error
    finally:
        if on_main:  # Ray puts its own in the place of ours.
            signal.signal(signal.SIGTERM, before)


def _last_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
