"""What measures many machines runs, and measures what it says."""

from conftest import load_script


def test_it_measures_reading_and_merging(tmp_path, capfd):
    bench = load_script("bench_scale")
    for name in ("read", "merge"):
        (tmp_path / name).mkdir()

    bench.measure_read(tmp_path / "read", 300)
    bench.measure_merge(tmp_path / "merge", 300, shards=3)

    lines = [line for line in capfd.readouterr().out.splitlines() if "µs" in line]
    assert [line.partition(":")[0] for line in lines] == [
        "shard 1/1",
        "shard 1/1000",
        "merge of 3 shards in order",
        "merge of 3 shards in no order",
    ]
    assert "300 rows kept" in lines[0]
    assert "300 results of" in lines[3]
