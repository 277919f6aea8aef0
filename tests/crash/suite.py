"""What holds of every verb on a table of either format when its process dies, or others get in between.

A test class chooses from the classes below what befalls its scenes. It has a fixture `scene: Scene`, and one `act: Act`
where others commit.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, ClassVar, Self

import pytest

from iceberg_cli.errors import BackendUnavailable, CorruptFile, IcebergCliError, Refused, TakenOver
from iceberg_cli.plan.report import Report
from iceberg_cli.testing.crash.process import Process
from iceberg_cli.testing.crash.world import Script, World, crash
from tests.budget import few_or_many, some
from tests.paths import besides_history

around = pytest.mark.parametrize("side", ["before", "after"])


@dataclass(kw_only=True)
class Scene:
    """A table in a world of its own, a verb on it, and what must hold of it."""

    process_type: ClassVar[type[Process]] = Process
    verb: ClassVar[str] = "expire-snapshots"
    policy: ClassVar[Any] = {}
    refusals: ClassVar[tuple[type[Exception], ...]] = ()  # of a run into which others commit
    stale: ClassVar[tuple[type[Exception], ...]] = ()  # of the first resume after others have committed
    makes_versions: ClassVar[bool] = True
    others: ClassVar[Sequence[Any]] = ()  # what else this tool can run on the table

    world: World

    def copy(self) -> Self:
        """The same, to change it alone."""
        return replace(self, world=self.world.copy())

    def process(self, **script: Any) -> Any:
        """A run of the verb, and what befalls it."""
        return self.process_type(
            world=self.world, script=Script(**script), verb=self.verb, policy=self.policy
        )

    def process_of(self, other: Any) -> Process:
        """A run of one of `others`."""
        raise NotImplementedError

    def check(self) -> object:
        """What must hold at any time."""
        raise NotImplementedError

    def finish(self) -> None:
        """Resume and run again: what must hold still does, and nothing is left to do or to clean up."""
        self.process().resume()
        self.check()
        assert self.process().run().status in ("done", "nothing_to_do")
        self.check()
        assert self.process().run().status == "nothing_to_do"
        self.check_finished()

    def check_finished(self) -> None:
        """What must hold when nothing is left to do."""
        self.check()
        assert not [path for path in besides_history(self.world.files) if "/_iceberg_cli/" in path]

    def check_done(self) -> None:
        """What the verb is for has happened once, where nobody else has committed."""

    def check_run(self, report: Report | None) -> None:
        """What must hold after a run into which others have committed; None: it was refused."""
        assert report is None or report.status in ("done", "nothing_to_do")
        self.check()

    def needed(self) -> set[str]:
        """The files that no clean-up of orphans may take."""
        raise NotImplementedError

    def is_commit(self, effect: str) -> bool:
        """Whether the effect makes the table's next version."""
        return effect.startswith("swap ")

    def is_too_late(self, _act: Act, _effect: str) -> bool:
        """Whether nothing can help any more where another writer acts before the effect."""
        return False

    def undisturbed(self) -> list[str]:
        """The effects of a run that nothing disturbs, computed once for all parameters of a test with equal worlds."""
        process = self.copy().process()
        key = _what_it_does(process)
        if key not in _undisturbed:
            assert process.run().status == "done"
            _undisturbed[key] = tuple(process.effects)
        return [*_undisturbed[key]]

    def run_disturbed(self, **script: Any) -> Report | None:
        """The report of a run into which others commit; None where it is refused."""
        with suppress(*self.refusals):
            return self.process(**script).run()
        return None


Act = Callable[[Any], object]
_undisturbed: dict[Hashable, tuple[str, ...]] = {}


def _what_it_does(process: Process) -> Hashable:
    """All that the effects of a process which nothing disturbs depend on."""
    world = process.world
    assert not world.late, "a request may arrive in the middle of it"
    own = [getattr(process, each.name) for each in fields(process) if each.name not in ("world", "script")]
    stored = frozenset(world.files.items()), frozenset(world.written_ms.items())
    clock = world.pointer, world.now_ms, world.drawn, world.dated, world.served
    # Other tests may have other bounds of batches and parts in place of the package's.
    test = os.environ["PYTEST_CURRENT_TEST"].partition("[")[0]
    return test, type(process), tuple(map(repr, own)), *stored, *clock


def lost_once(path: str) -> Callable[[str], str | None]:
    """The first put of this file does not happen, and nobody says so."""
    paths = [path]

    def lose(key: str) -> str | None:
        if key not in paths:
            return None
        paths.remove(key)
        return "no answer"

    return lose


class Undisturbed:
    """Nothing befalls the process."""

    def test_a_run_that_nothing_disturbs_leaves_nothing_to_do(self, scene: Scene) -> None:
        here = scene.copy()
        assert here.process().plan().plan.due
        assert here.process().run().status == "done"
        here.check()
        here.check_done()
        here.finish()


class Crashes:
    """The process dies."""

    crashes: ClassVar[int]  # moments of either side that are always tried

    @pytest.mark.pairs
    @few_or_many(1)
    @around
    def test_a_crash_around_any_effect_is_made_good_by_resume(
        self, scene: Scene, side: str, budget: int
    ) -> None:
        effects = scene.undisturbed()
        for number, effect in some([*enumerate(effects)], budget * self.crashes):
            here = scene.copy()
            process = here.process(**{side: {number: crash}})
            # A put of what is there already ends in an error that is handled: nothing comes after it.
            assert process.dies(process.run) or (side == "after" and effect in effects[:number]), effect
            here.check()
            here.finish()
            here.check_done()


class SecondCrashes:
    """The process dies, and so does the one that goes on with what it left."""

    second_crashes: ClassVar[int]  # pairs of moments that are always tried

    @pytest.mark.few(3)
    @few_or_many(1)
    def test_a_second_crash_while_the_first_is_resumed(self, scene: Scene, budget: int) -> None:
        count = len(scene.undisturbed())
        moments = [(first, second) for first in range(count) for second in range(count - first + 2)]
        for first, second in some(moments, budget * self.second_crashes):
            here = scene.copy()
            process = here.process(after={first: crash})
            process.dies(process.run)
            resuming = here.process(before={second: crash})
            resuming.dies(resuming.run)
            here.check()
            here.finish()
            here.check_done()


class Commits:
    """Another writer commits while the process runs."""

    commits: ClassVar[int]  # moments that are always tried of each act

    @pytest.mark.pairs
    @few_or_many(1)
    def test_anothers_commit_before_any_effect_is_kept(self, scene: Scene, act: Act, budget: int) -> None:
        for number, effect in some([*enumerate(scene.undisturbed())], budget * self.commits):
            if scene.is_too_late(act, effect):
                continue
            here = scene.copy()
            print(f"before {effect}")
            here.check_run(here.run_disturbed(before={number: partial(act, here)}))
            here.finish()


class CommitsMeanwhile:
    """Another writer commits while the process is dead."""

    commits_meanwhile: ClassVar[int]  # moments that are always tried of each act

    @pytest.mark.pairs
    @few_or_many(1)
    def test_anothers_commit_while_the_process_is_dead_is_kept(
        self, scene: Scene, act: Act, budget: int
    ) -> None:
        moments = itertools.product(("before", "after"), enumerate(scene.undisturbed()))
        for side, (number, effect) in some([*moments], budget * self.commits_meanwhile):
            here = scene.copy()
            process = here.process(**{side: {number: crash}})
            assert process.dies(process.run) or side == "after"
            print(f"{side} {effect}")
            with suppress(Refused):  # where the other one is of this tool
                act(here)
            with suppress(*scene.stale):
                here.process().resume()
            here.check()
            here.finish()


class CommitsAtTheSwap:
    """Another writer commits after the process has looked and before it commits."""

    @pytest.mark.few(4)
    def test_anothers_commit_between_our_look_and_our_commit_is_kept(
        self, scene: Scene, act_at_the_swap: Act
    ) -> None:
        numbers = [n for n, effect in enumerate(scene.undisturbed()) if scene.is_commit(effect)]
        assert bool(numbers) == scene.makes_versions
        for number in numbers:
            here = scene.copy()
            here.check_run(here.run_disturbed(before={number: partial(act_at_the_swap, here)}))
            here.finish()


class Days:
    """The process stands still for days."""

    days: ClassVar[int] = 1  # moments that are always tried, and as many right before a swap

    @pytest.mark.few(4)
    @few_or_many(1)
    def test_a_process_that_stands_still_while_orphans_are_cleaned_leaves_a_whole_table(
        self, scene: Scene, budget: int
    ) -> None:
        effects = scene.undisturbed()
        before_a_swap = [n for n in range(len(effects) - 1) if scene.is_commit(effects[n + 1])]
        for number in {*before_a_swap[:budget], *some(range(len(effects)), budget)}:
            here = scene.copy()

            def days_later(here: Scene = here) -> None:
                here.world.remove_orphans(here.needed())

            self.check_days(here, here.process(after={number: days_later}))

    def check_days(self, here: Scene, process: Process) -> None:
        """What must hold of the run, and of the table after it."""
        # A file may go between its being written and its being read back.
        with suppress(BackendUnavailable, CorruptFile):
            assert process.run().status == "done"
        here.check()
        here.finish()


class Rivals:
    """Other processes of this tool get in between."""

    resumes: ClassVar[int]  # moments that are always tried

    @pytest.mark.few(4)
    @few_or_many(1)
    def test_a_second_process_that_resumes_at_any_moment_and_the_first_that_goes_on(
        self, scene: Scene, budget: int
    ) -> None:
        for number in some(range(len(scene.undisturbed())), budget * self.resumes):
            here = scene.copy()
            other = here.process()
            with suppress(TakenOver):
                here.process(before={number: other.resume}).run()
            here.check()
            here.finish()
            here.check_done()

    @pytest.mark.few(3)
    @few_or_many(1, many=8, all_of=500)
    def test_a_crash_anywhere_and_a_resume_beside_two_other_verbs(self, scene: Scene, budget: int) -> None:
        draw = random.Random(13)
        for death in some(range(len(scene.undisturbed())), budget):
            here = scene.copy()
            dying = here.process(before={death: crash})
            assert dying.dies(dying.run)
            one, other = draw.sample(here.others, 2)
            first, second = draw.randrange(6), draw.randrange(12)
            print(f"dies before {death}; {one} before {first}, {other} before {second}")

            def beside(verb: Any, here: Scene = here, *, settles: bool) -> None:
                """Where it is not told to leave open operations alone, it settles them first."""
                with suppress(IcebergCliError):
                    here.process_of(verb).run(settle=settles)
                here.check()

            resuming = here.process(
                before={
                    first: partial(beside, one, settles=draw.random() < 0.5),
                    first + second: partial(beside, other, settles=draw.random() < 0.5),
                }
            )
            with suppress(IcebergCliError):
                resuming.resume()
            here.check()
            here.finish()
