"""The iteration of a text workload: the passes of each stage, and the sends between stages."""

from __future__ import annotations

from typing import Literal, NamedTuple

from echelon.model.jobs.ranked import Mesh
from echelon_importers.astra_sim.passes import Passes, Plan
from echelon_importers.astra_sim.stages import Pipeline
from echelon_importers.workload import Builder, Workload

Direction = Literal["fwd", "bwd"]


class Visit(NamedTuple):
    """The rows that a micro-batch runs between two sends."""

    direction: Direction
    number: int
    """The micro-batch, counted from 0."""
    place: int
    """The rows of the micro-batch: those of stage ``place % stages``."""

    @property
    def step(self) -> int:
        """Return the distance to the next place."""
        return 1 if self.direction == "fwd" else -1

    def previous(self) -> Visit:
        """Return the visit whose output this one waits for."""
        return self._replace(place=self.place - self.step)

    def send_name(self, receiver: int) -> str:
        """Return the name of the send of this visit's output to a rank."""
        return f"{self.direction}-m{self.number + 1}-v{self.place}-r{receiver}"


class Iteration:
    """An iteration on all stages: every rank does its rows in order, and waits for its peers."""

    def __init__(
        self,
        plan: Plan,
        pipeline: Pipeline,
        mesh: Mesh[int],
    ) -> None:
        self.header = plan.header
        self.pipeline = pipeline
        self.builder = Builder(len(mesh.ranks))
        self.in_stage = len(mesh.ranks) // pipeline.stages
        self.stages = []
        for stage in range(pipeline.stages):
            passes = Passes(self.builder, plan, mesh, stage)
            self.stages.append(passes)
        self.sent: set[Visit] = set()
        """The visits whose output is on its way."""

    def run(self) -> Workload:
        """Return the iteration."""
        if self.header.loop == "MICRO":
            [rows] = self.pipeline.micro_batches[0]
            self.stages[0].all_at_once(rows)
        else:
            self._forward()
            if not self.header.is_inference:
                self._backward()
        return self.builder.workload()

    def _forward(self) -> None:
        for passes in self.stages:
            passes.forward(self.pipeline.before)
        self._pass("fwd")
        for passes in self.stages:
            passes.forward(self.pipeline.after)

    def _backward(self) -> None:
        for passes in self.stages:
            passes.backward(self.pipeline.after)
        self._pass("bwd")
        for passes in self.stages:
            passes.backward(self.pipeline.before)

    def _pass(self, direction: Direction) -> None:
        """Let all stages run the micro-batches, each as soon as its input has been sent."""
        todo = []
        for stage in range(len(self.stages)):
            order = self.pipeline.order(stage)
            visits = [Visit(direction, number, place) for number, place in order]
            # A backward pass is the forward pass in reverse; the next visit is the last of a list.
            if direction == "fwd":
                visits.reverse()
            todo.append(visits)
        while any(todo):
            for visits in todo:
                while visits and self._is_ready(visits[-1]):
                    visit = visits.pop()
                    self._run(visit)

    def _has_place(self, visit: Visit) -> bool:
        places = self.pipeline.micro_batches[visit.number]
        return 0 <= visit.place < len(places)

    def _is_ready(self, visit: Visit) -> bool:
        previous = visit.previous()
        return previous in self.sent or not self._has_place(previous)

    def _run(self, visit: Visit) -> None:
        """Let a stage wait for its input, run its rows, and send its output."""
        stage = visit.place % len(self.stages)
        passes = self.stages[stage]
        previous = visit.previous()
        if self._has_place(previous):
            for rank in passes.ranks:
                name = previous.send_name(rank)
                self.builder.wait(rank, name)
        rows = self.pipeline.micro_batches[visit.number][visit.place]
        if visit.direction == "fwd":
            passes.forward(rows)
        else:
            passes.backward(rows)
        following = visit._replace(place=visit.place + visit.step)
        if self._has_place(following):
            receivers = following.place % len(self.stages)
            self._send(visit, (receivers - stage) * self.in_stage)

    def _send(self, visit: Visit, distance: int) -> None:
        """Let each rank of a visit send its output to its peer, so many ranks away."""
        size_bytes = self.header.number("pp_comm", 0)
        stage = visit.place % len(self.stages)
        for rank in self.stages[stage].ranks:
            peer = rank + distance
            name = visit.send_name(peer)
            self.builder.send(name, rank, peer, size_bytes)
        self.builder.tally.derived["sends between stages"] += self.in_stage
        self.sent.add(visit)
