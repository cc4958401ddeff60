"""What tests cost: processor seconds, which a busy machine does not lengthen, and compilations.

`pytest --costs=20` ends with the twenty most expensive tests and files. A fixture's cost falls on
the test that first asks for it, a child process's on the test that waits for it.
"""

import os
from collections import defaultdict

import pytest

_COMPILED = "/jax/core/compile/backend_compile_duration"


class Costs:
    """Seconds, compilations and their seconds, per test; works across xdist's processes."""

    def __init__(self, n_shown):
        self.n_shown = n_shown
        self.n_compiled, self.compiling = 0, 0.0
        self.per_test = defaultdict(lambda: [0.0, 0, 0.0])
        self.listening = False
        self.last = self._now()

    def _now(self):
        return sum(os.times()[:4]), self.n_compiled, self.compiling

    def _listen(self):
        import jax

        jax.monitoring.register_event_duration_secs_listener(self._heard)
        self.listening = True

    def _heard(self, event, seconds, **_):
        if event == _COMPILED:
            self.n_compiled += 1
            self.compiling += seconds

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        now = self._now()
        report.cost = [a - b for a, b in zip(now, self.last, strict=True)]
        self.last = now
        return report

    def pytest_runtest_logstart(self):
        if not self.listening:
            self._listen()
            self.last = self._now()  # collecting is no test's cost

    def pytest_runtest_logreport(self, report):
        total = self.per_test[report.nodeid]
        for i, value in enumerate(getattr(report, "cost", ())):
            total[i] += value

    def pytest_terminal_summary(self, terminalreporter):
        files = defaultdict(lambda: [0, 0.0, 0, 0.0])
        for test, cost in self.per_test.items():
            into = files[test.split("::")[0]]
            for i, value in enumerate([1, *cost]):
                into[i] += value
        terminalreporter.section("costs")
        write = terminalreporter.write_line
        write("seconds  compiled  seconds  tests")
        total = [sum(values) for values in zip(*files.values(), strict=True)]
        lines = sorted(files.items(), key=lambda file: -file[1][1])
        for name, (n, seconds, compiled, compiling) in [("all", total), *lines[: self.n_shown]]:
            write(f"{seconds:7.1f}  {compiled:8d}  {compiling:7.1f}  {n:5d}  {name}")
        tests = sorted(self.per_test.items(), key=lambda test: -test[1][0])
        for name, (seconds, compiled, compiling) in tests[: self.n_shown]:
            write(f"{seconds:7.1f}  {compiled:8d}  {compiling:7.1f}         {name}")
