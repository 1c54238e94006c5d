"""A batch on Ray as a program of its own: `ray_job.py ROWS RESULTS MILLISECONDS`, judged by scripted actors."""

import asyncio
import json
import sys
from functools import partial
from pathlib import Path

from judge_local import VERDICT_SCHEMA, MockProvider, mock_verdict
from judge_local.batch.formats import Source
from judge_local.batch.judging import Judging
from judge_local.batch.ray_engine import RayEngine, remote_work
from judge_local.batch.results_file import open_results
from judge_local.batch.rows import Subjects, read_rows
from judge_local.batch.runner import Standing, run_batch


def slow_judge(milliseconds):
    """A scripted judge whose answers take their time. Made inside a function, so that it travels with its code."""

    class Slow(MockProvider):
        async def complete_json(self, request):
            await asyncio.sleep(milliseconds / 1000)
            return await super().complete_json(request)

    return partial(Slow, [mock_verdict("pass", 0.9)])


async def main(rows, path, milliseconds):
    make = slow_judge(milliseconds)
    judging = Judging(schema=VERDICT_SCHEMA, machine={}, runs=1)
    work = remote_work(make, judging, make())
    standing = Standing()
    with open_results(path, judging.header(make()), on_kept=standing.counts.add) as results:
        async with RayEngine(work, actors=2) as engine:
            await run_batch(
                read_rows(Source(rows)),
                engine.judge_row,
                results,
                subjects=Subjects(Path.cwd()),
                at_once=engine.at_once,
                standing=standing,
            )
    facts = {"judged": standing.judged, "found": standing.found, "errors": standing.counts.errors}
    sys.stdout.write(json.dumps(facts) + "\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
