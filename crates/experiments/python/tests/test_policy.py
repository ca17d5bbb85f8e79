"""Policies in Python: the same figures as the native one, and mistakes that are told."""

import time
import unittest

import manylogs
from common import SAMPLE

DRIVES = ("exos-x20", "cheetah-15k5")


class Default(manylogs.Policy):
    """The volume's own policy, written in Python."""

    def logs(self, request):
        return request.sectors <= 512

    def place(self, head, logs):
        below, above = logs.around(head)
        if below is None:
            if above is None:
                return min(logs, key=lambda log: abs(logs.start(log) - head), default=None)
            return above
        if above is None:
            return below
        near = abs(logs.tail(below) - head) <= abs(logs.tail(above) - head)
        return below if near else above


class Raises(manylogs.Policy):
    def logs(self, request):
        raise ValueError("not today")


class Names(manylogs.Policy):
    """Names the same log for ever."""

    def __init__(self, log):
        self.log = log

    def place(self, head, logs):
        return self.log


def own_figures(result, name):
    """All that a policy's entry has, save what it is called."""
    figures = dict(result[name].figures)
    return {key: value for key, value in figures.items() if key != "name"}


class Policies(unittest.TestCase):
    def test_the_default_in_python_has_the_native_figures(self):
        for drive in DRIVES:
            for options in ({"rate": "auto"}, {"durability": "all", "repeat": 2}):
                with self.subTest(drive=drive, **options):
                    result = manylogs.replay(
                        SAMPLE, drive, ["nologging", "mlb", Default()], fit=True, seeds=2,
                        **options)
                    self.assertGreater(result["mlb"]["log_records"], 100)
                    self.assertEqual(
                        own_figures(result, "Default"), own_figures(result, "mlb"))
        short = manylogs.read_trace(SAMPLE, limit=3000)
        paper = Default()
        paper.base, paper.name = "mlb-paper", "paper's"
        inherited = manylogs.Policy()
        result = manylogs.replay(short, "exos-x20", ["mlb-paper", paper, inherited, "mlb"], fit=True)
        self.assertEqual(own_figures(result, "paper's"), own_figures(result, "mlb-paper"))
        self.assertEqual(own_figures(result, "Policy"), own_figures(result, "mlb"))

    def test_what_a_policy_says_is_done(self):
        class Nothing(manylogs.Policy):
            def logs(self, request):
                return False

        class Farthest(manylogs.Policy):
            def place(self, head, logs):
                return max(logs, key=lambda log: abs(logs.start(log) - head))

        seen = []

        class Looks(manylogs.Policy):
            def __deepcopy__(self, memo):
                return self

            def logs(self, request):
                seen.append((request.lba, request.sectors, request.fua, request.head))
                return super().logs(request)

            def place(self, head, logs):
                below, above = logs.around(head)
                inside = [log for log in (below, above) if log is not None]
                assert all(log in logs and 0 <= log < logs.count for log in inside)
                assert all(logs.used(log) <= logs.sectors(log) for log in inside)
                assert all(logs.tail(log) == logs.start(log) + logs.used(log) for log in inside)
                assert logs.count + 5 not in logs and list(logs) == sorted(logs)
                return super().place(head, logs)

        trace = manylogs.read_trace(SAMPLE, limit=2000)
        result = manylogs.replay(
            trace, "exos-x20", ["mlb", Nothing(), Farthest(), Looks()], fit=True, seeds=1)
        self.assertEqual(result["Nothing"]["logged_writes"], 0)
        mean = {name: result[name]["latency_us"]["durable"]["mean"] for name in result}
        self.assertGreater(mean["Farthest"], mean["mlb"] * 1.2)
        self.assertEqual(own_figures(result, "Looks"), own_figures(result, "mlb"))
        self.assertGreater(len(seen), 100)
        self.assertTrue(all(0 < sectors <= 512 for _, sectors, _, _ in seen))
        self.assertEqual({fua for _, _, fua, _ in seen}, {True, False})

    def test_each_replay_has_a_policy_of_its_own(self):
        class First(manylogs.Policy):
            """Logs the first writes of a replay."""

            asked = 0

            def begin(self, seed):
                assert self.asked == 0, "a fresh one"

            def logs(self, request):
                self.asked += 1
                return self.asked <= 100

        policy = First()
        trace = manylogs.read_trace(SAMPLE, limit=2000)
        one = manylogs.replay(trace, "exos-x20", policy, fit=True, seeds=1)
        self.assertEqual(one["First"]["logged_writes"], 100)
        many = manylogs.replay(trace, "exos-x20", policy, fit=True, seeds=4, threads=4)
        again = manylogs.replay(trace, "exos-x20", policy, fit=True, seeds=4, threads=1)
        self.assertEqual(many.json(), again.json())
        self.assertEqual(policy.asked, 0)

    def test_hooks_that_raise_say_where(self):
        with self.assertRaises(manylogs.Error) as caught:
            manylogs.replay(SAMPLE, "exos-x20", ["mlb", Raises()], fit=True)
        error = caught.exception
        self.assertIn("policy Raises: logs() raised ValueError: not today", str(error))
        self.assertIsInstance(error.__cause__, ValueError)
        self.assertEqual(error.file, __file__)
        with open(__file__, encoding="ascii") as file:
            self.assertIn("not today", file.readlines()[error.line - 1])
        self.assertEqual(error.exit_code, 2)

        class Uncopied(manylogs.Policy):
            def __deepcopy__(self, memo):
                raise TypeError("there is one of me")

        with self.assertRaises(manylogs.Error) as caught:
            manylogs.replay(SAMPLE, "exos-x20", Uncopied(), fit=True)
        self.assertIn("there is one of me", str(caught.exception))

    def test_logs_that_take_nothing_are_told(self):
        for log, said in [
            (10**6, "there are"), (-1, "not the number of a log"), ("x", "named 'x'"),
            (None, "named None"), (0, "full"),
        ]:
            with self.subTest(log=log):
                small = Names(log)
                small.base = "mlb:log=4M,group=100M"
                with self.assertRaises(manylogs.Error) as caught:
                    manylogs.replay(
                        SAMPLE, "exos-x20", ["mlb", small], fit=True, durability="all", repeat=9)
                self.assertIn("policy Names: place() named", str(caught.exception))
                self.assertIn(said, str(caught.exception))
        self.assertEqual(len(manylogs.replay("synthetic", policies="mlb", fit=True, seeds=1)), 1)

    def test_a_view_ends_with_its_call(self):
        kept = []

        class Keeps(manylogs.Policy):
            def __deepcopy__(self, memo):
                return self

            def place(self, head, logs):
                kept.append(logs)
                with_unknown = 0
                try:
                    logs.start(10**6)
                except IndexError as error:
                    with_unknown = "there is no log 1000000" in str(error)
                assert with_unknown
                return super().place(head, logs)

        trace = manylogs.read_trace(SAMPLE, limit=500)
        manylogs.replay(trace, "exos-x20", Keeps(), fit=True, seeds=1)
        with self.assertRaises(RuntimeError) as caught:
            list(kept[0])
        self.assertIn("only during place()", str(caught.exception))

    def test_names_and_bases_are_checked(self):
        for name, base, said in [
            ("mlb", "mlb", "another policy has this name"), ("own", "nologging", "no logs"),
            ("own", "mlb:what=1", "no parameter `what`"),
        ]:
            policy = manylogs.Policy()
            policy.name, policy.base = name, base
            with self.assertRaises(manylogs.Error) as caught:
                manylogs.replay("synthetic", policies=policy, fit=True)
            self.assertIn(said, str(caught.exception))
        with self.assertRaises(manylogs.Error) as caught:
            manylogs.replay("synthetic", policies=[manylogs.Policy(), manylogs.Policy()], fit=True)
        self.assertIn("given twice", str(caught.exception))
        with self.assertRaises(manylogs.Error) as caught:
            manylogs.replay("synthetic", policies=[3], fit=True)
        self.assertIn("expected text or a manylogs.Policy", str(caught.exception))

    def test_it_has_much_of_the_native_speed(self):
        trace = manylogs.read_trace(SAMPLE)

        def cpu_s(policy):
            before = time.process_time()
            manylogs.replay(trace, "exos-x20", policy, fit=True, seeds=1, repeat=2, threads=1)
            return time.process_time() - before

        # CPU, and the least of some: others use the machine, too.
        native, own = (
            min(times) for times in zip(*[(cpu_s("mlb"), cpu_s(Default())) for _ in range(4)]))
        self.assertGreater(native / own, 0.4, f"{native} s of CPU, in Python {own} s")


if __name__ == "__main__":
    unittest.main()
