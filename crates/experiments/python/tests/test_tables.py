"""Tables go to other libraries without a copy, and come from them."""

import pathlib
import tempfile
import unittest

import manylogs
import pandas
import polars
import pyarrow
import pyarrow.parquet
from common import SAMPLE, without_command

NAMES = ["t_ns", "op", "lba", "sectors", "fua", "dev"]


def addresses(chunk):
    """Where the buffers of an Arrow array lie; an absent bitmap lies nowhere."""
    return [buffer.address for buffer in chunk.buffers() if buffer is not None and buffer.size > 0]


class Tables(unittest.TestCase):
    def setUp(self):
        self.trace = manylogs.read_trace(SAMPLE)

    def shares_memory(self, table):
        """Two exports have the same buffers, and polars has these, too."""
        first, second = pyarrow.table(table), pyarrow.table(table)
        frame = polars.DataFrame(table)
        self.assertEqual(frame.columns, first.column_names)
        for name in first.column_names:
            for one, other in zip(first[name].chunks, second[name].chunks, strict=True):
                self.assertEqual(addresses(one), addresses(other), name)
            series = frame[name]
            self.assertEqual(series.to_list(), first[name].to_pylist(), name)
            if pyarrow.types.is_dictionary(first[name].type):
                # polars has codes of its own for such columns, so it copies these.
                continue
            theirs = series.to_arrow(compat_level=polars.CompatLevel.newest())
            if first[name].num_chunks == 1:
                ours = [at for at in addresses(first[name].chunk(0)) if at]
                self.assertLessEqual(set(ours), set(addresses(theirs)), name)
        return first, frame

    def test_a_trace_is_shared(self):
        table, frame = self.shares_memory(self.trace)
        self.assertEqual((table.column_names, len(table)), (NAMES, len(self.trace)))
        self.assertEqual(set(frame["op"].unique()), {"R", "W", "F"})

    def test_requests_and_sweeps_are_shared(self):
        result = manylogs.replay(
            self.trace, policies=["nologging", "mlb"], requests=True, seeds=1, fit=True)
        requests, _ = self.shares_memory(result["mlb"].requests)
        self.assertEqual(requests.column_names, [
            "arrived_s", "kind", "latency_us", "request", "lba", "sectors", "served"])
        self.assertGreater(len(requests), 10_000)
        self.assertEqual(set(requests["kind"].unique().to_pylist()), {
            "read", "durable-write", "cached-write", "sync", "other"})
        sweep = manylogs.sweep(
            traces=[SAMPLE], drives=["exos-x20"], policies=["nologging", "mlb"], seeds=1, limit=500,
            fit=True)
        rows, _ = self.shares_memory(sweep)
        self.assertEqual(rows["policy"].to_pylist(), ["nologging", "mlb"])

    def test_requests_are_those_of_the_figures(self):
        result = manylogs.replay(self.trace, policies="mlb", requests=True, seeds=1, fit=True)
        frame = polars.DataFrame(result["mlb"].requests)
        reads = frame.filter(polars.col("kind") == "read")["latency_us"]
        wanted = result["mlb"]["latency_us"]["reads"]
        self.assertEqual(len(reads), wanted["requests"])
        self.assertAlmostEqual(reads.mean(), wanted["mean"], delta=0.001 * wanted["mean"])
        wrote = frame.filter(polars.col("kind").cat.ends_with("-write"))
        logged = wrote.filter(polars.col("served").is_in(["log", "both"]))
        # A write may be logged in two parts, before and behind whole sectors that go home.
        counted = result["mlb"]["logged_writes"]
        self.assertLessEqual(len(logged), counted)
        self.assertGreater(2 * len(logged), counted)
        self.assertEqual(sorted(frame["request"]), list(range(len(frame))))
        with self.assertRaises(ValueError):
            manylogs.replay(self.trace, policies="mlb", fit=True)["mlb"].requests

    def test_requests_in_chunks_are_those_of_files(self):
        # More than one chunk has.
        result = manylogs.replay(
            self.trace, policies="mlb", requests=True, seeds=1, fit=True, repeat=3)
        table = result["mlb"].requests
        arrow, _ = self.shares_memory(table)
        self.assertGreater(arrow["lba"].num_chunks, 1)
        self.assertEqual(len(arrow), len(table))
        self.assertEqual(sorted(arrow["request"].to_pylist()), list(range(len(table))))
        frame = pandas.DataFrame.from_arrow(table)
        self.assertEqual(list(frame["kind"]), arrow["kind"].to_pylist())
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "requests"
            table.to_parquet(file)
            kept = pyarrow.parquet.read_table(file)
            self.assertEqual(kept.num_rows, len(table))
            for name in kept.column_names:
                self.assertEqual(kept[name].to_pylist(), arrow[name].to_pylist(), name)
            table.to_csv(file)
            read = polars.read_csv(file)
            self.assertEqual(read["lba"].to_list(), arrow["lba"].to_pylist())

    def test_pandas_copies_once(self):
        frame = pandas.DataFrame.from_arrow(self.trace)
        self.assertEqual(list(frame.columns), NAMES)
        self.assertEqual(list(frame["lba"]), pyarrow.table(self.trace)["lba"].to_pylist())
        self.assertEqual(list(frame["op"]), pyarrow.table(self.trace)["op"].to_pylist())

    def test_a_table_outlives_what_made_it(self):
        table = pyarrow.table(manylogs.read_trace(SAMPLE))
        self.assertEqual(table.column("dev").null_count, 0)
        self.assertTrue(table.validate(full=True) is None)

    def test_any_table_with_the_columns_is_a_trace(self):
        options = {"policies": ["nologging", "mlb"], "seeds": 1, "fit": True}
        wanted = manylogs.replay(self.trace, **options).json()
        arrow, frame = pyarrow.table(self.trace), polars.DataFrame(self.trace)
        micro = frame.select(
            time_ns=frame["t_ns"], offset=frame["lba"] * 512, size=frame["sectors"] * 512,
            rw=frame["op"].replace({"R": "read", "W": "write", "F": "flush"}), fua=frame["fua"],
            more=frame["lba"].cast(polars.Date, strict=False))
        for table in [
            arrow,
            frame,
            pandas.DataFrame.from_arrow(self.trace),
            micro,
            arrow.set_column(1, "op", arrow["op"].cast(pyarrow.string()).dictionary_encode()),
            arrow.to_reader(max_chunksize=1000),
        ]:
            name = str(self.trace.name)
            found = manylogs.read_trace(table, name=name)
            self.assertEqual(len(found), len(self.trace))
            text = manylogs.replay(found, **options).json()
            self.assertEqual(without_command(text), without_command(wanted), type(table))
        own = manylogs.replay(frame.head(1000), **options)
        self.assertEqual(own.figures["trace"]["requests"], 1000)

    def test_rows_that_make_no_sense_are_named(self):
        frame = polars.DataFrame(self.trace).head(100)
        missing = frame.drop("lba")
        with self.assertRaises(manylogs.Error) as caught:
            manylogs.read_trace(missing)
        self.assertIn("a first line that names time, op, offset and size", str(caught.exception))
        gap = frame.with_columns(
            lba=polars.when(polars.int_range(100) == 7).then(None).otherwise(polars.col("lba")))
        with self.assertRaises(manylogs.Error) as caught:
            manylogs.read_trace(gap, name="gap")
        error = caught.exception
        self.assertEqual((error.file, error.line, error.exit_code), ("gap", 9, 2))
        found = manylogs.read_trace(gap, skip_bad=True)
        self.assertEqual((len(found), found.dropped["malformed"]), (99, 1))

    def test_rows_out_of_order_are_put_in_order(self):
        frame = polars.DataFrame(self.trace).head(1000)
        found = manylogs.read_trace(frame.sample(fraction=1, shuffle=True, seed=1))
        times = pyarrow.table(found)["t_ns"].to_pylist()
        self.assertEqual(times, sorted(times))
        self.assertEqual(len(found), 1000)

    def test_a_table_of_another_kind_is_refused(self):
        class Odd:
            def __arrow_c_stream__(self, requested_schema=None):
                return 7

        with self.assertRaises(manylogs.Error) as caught:
            manylogs.read_trace(Odd())
        self.assertIn("not an Arrow table", str(caught.exception))
        with self.assertRaises(manylogs.Error):
            manylogs.read_trace(7)
        reader = pyarrow.table(self.trace).to_reader()
        manylogs.read_trace(reader)
        with self.assertRaises(manylogs.Error):
            manylogs.read_trace(reader)


if __name__ == "__main__":
    unittest.main()
