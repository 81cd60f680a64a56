"""Episodes as readers want them: pages and facets without texts, one episode in full, one turn's texts; and saved
views, lists of episodes kept under a name, each as the address of its page."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from sqlalchemy import Engine, delete, func, insert, select, update

from core.episode import Episode, Reply, Status, Task
from core.errors import StoreError
from core.ids import view_id
from core.pool.spec import ModelSpec
from storage.filters import listing
from storage.filters.episode_filter import EpisodeFilter, conditions
from storage.filters.listing import LIGHT, ORDERS, read_facets, read_groups, to_summary
from storage.rows import mapping
from storage.rows.engine import fetch_mapping, fetch_mappings, fetch_rows, reading, writing
from storage.rows.full_episodes import (
    ReplyKey,
    chunks,
    delete_episodes,
    no_episode,
    read_episodes,
    read_pending_replies,
    rows_among,
)
from storage.rows.mapping import Rows
from storage.rows.schema import at_turn, episode, same_turn, task, text, turn, view
from storage.rows.summaries import (
    QUESTION_CUT,
    EpisodeGroup,
    EpisodeSummary,
    Facets,
    GroupBy,
    Order,
    Page,
    SavedView,
    TurnOutline,
    TurnText,
)
from storage.shelves.replies import SharedReplies

LONGEST_NAME = 80
_LONGEST_QUERY = 200_000  # characters: some thousands of episode ids


@dataclass(frozen=True)
class Views:
    """The saved views of a store (`store.views`)."""

    engine: Engine
    now: Callable[[], float]

    def add(self, name: str, query: Mapping[str, str]) -> SavedView:
        """Keep a page's query parameters under a name. StoreError for an empty or overlong name."""
        named, at = visible_name(name, "view"), self.now()
        if sum(len(name) + len(value) for name, value in query.items()) > _LONGEST_QUERY:
            raise StoreError("This list is too long to be kept: choose fewer episodes.")
        saved = SavedView(view_id(int(at), secrets.token_bytes(8)), named, dict(query), at)
        with writing(self.engine) as connection:
            connection.execute(insert(view).values(id=saved.id, name=named, query=query, created=at))
        return saved

    def list(self, limit: int | None = None) -> list[SavedView]:
        query = select(view).order_by(view.c.created.desc(), view.c.id.desc()).limit(limit)
        return [mapping.from_row(SavedView, row) for row in fetch_mappings(self.engine, query)]

    def get(self, view_id: str) -> SavedView:
        row = fetch_mapping(self.engine, select(view).where(view.c.id == view_id))
        if row is None:
            raise _no_view(view_id)
        return mapping.from_row(SavedView, row)

    def rename(self, view_id: str, name: str) -> None:
        change = update(view).where(view.c.id == view_id).values(name=visible_name(name, "view"))
        with writing(self.engine) as connection:
            if not connection.execute(change).rowcount:
                raise _no_view(view_id)

    def delete(self, view_id: str) -> None:
        with writing(self.engine) as connection:
            if not connection.execute(delete(view).where(view.c.id == view_id)).rowcount:
                raise _no_view(view_id)


def visible_name(name: str, of: str) -> str:
    """A name on one line. StoreError for none, and for one that is too long, `of` a view or a key."""
    words = " ".join(name.split())
    if not words or len(words) > LONGEST_NAME or not words.isprintable():
        raise StoreError(f"A {of} needs a name of 1 to {LONGEST_NAME} visible characters.")
    return words


def _no_view(view_id: str) -> StoreError:
    return StoreError(f"The store holds no saved view {view_id[:40]}: it may have been deleted.")


_EVERYTHING = EpisodeFilter()
_CUT_ANSWER = func.substr(turn.c.answer_after, 1, QUESTION_CUT).label("answer_after")
_OUTLINE_NAMES = [field.name for field in fields(TurnOutline) if field.name not in ("index", "judgements")]
_OUTLINE = [turn.c.idx, *(_CUT_ANSWER if name == "answer_after" else turn.c[name] for name in _OUTLINE_NAMES)]


@dataclass(frozen=True)
class Episodes:
    """The episodes of a store (`store.episodes`). They are written by `storage.recorder.record`."""

    engine: Engine

    def page(
        self,
        where: EpisodeFilter = _EVERYTHING,
        *,
        order: Order = "newest",
        after: str | None = None,
        before: str | None = None,
        last: bool = False,
        limit: int = 50,
    ) -> Page[EpisodeSummary]:
        """The page after or before a cursor, the first, or the last. Two queries, no texts."""
        keyset = ORDERS[order]
        matching = conditions(where, self.engine.dialect.name)
        with reading(self.engine) as connection:
            total = listing.count_capped(connection, select(episode.c.id).where(*matching))
            if not total.n:  # a second search for nothing would take as long again
                return Page((), total)
            rows = select(*LIGHT, keyset.key.label("page_key")).where(*matching)
            return listing.read_page(
                connection,
                rows,
                keyset,
                total,
                to_summary,
                after=after,
                before=before,
                last=last,
                limit=limit,
            )

    def neighbours(
        self, episode_id: str, where: EpisodeFilter = _EVERYTHING, *, order: Order = "newest"
    ) -> tuple[str | None, str | None] | None:
        """The ids before and after one in a list, None at its ends; None when the list does not hold it."""
        keyset, matching = ORDERS[order], conditions(where, self.engine.dialect.name)
        own = select(keyset.key.label("key"), episode.c.id).where(episode.c.id == episode_id, *matching)
        here = own.cte("here")
        at = select(here.c.key).scalar_subquery(), select(here.c.id).scalar_subquery()
        before, after = (
            keyset.ordered(
                select(episode.c.id).where(*matching, keyset.beyond(at, backwards)), backwards
            ).limit(1)
            for backwards in (True, False)
        )
        query = select(at[1], before.scalar_subquery(), after.scalar_subquery())
        with reading(self.engine) as connection:
            found, *sides = connection.execute(query).one()
        return None if found is None else (sides[0], sides[1])

    def facets(self, where: EpisodeFilter = _EVERYTHING) -> Facets:
        with reading(self.engine) as connection:
            return read_facets(connection, where, self.engine.dialect.name)

    def groups(
        self, by: GroupBy, where: EpisodeFilter = _EVERYTHING, *, limit: int = 200
    ) -> tuple[list[EpisodeGroup], bool]:
        """The filtered episodes counted by a field, largest groups first, and whether there are more groups."""
        with reading(self.engine) as connection:
            return read_groups(connection, where, by, self.engine.dialect.name, limit)

    def summaries(self, episode_ids: Sequence[str]) -> list[EpisodeSummary]:
        """The lines of these episodes, in this order; those that are gone are left out."""
        with reading(self.engine) as connection:
            rows = rows_among(connection, select(*LIGHT), episode.c.id, episode_ids)
            found = {row["id"]: to_summary(row) for row in rows}
        return [found[one] for one in episode_ids if one in found]

    def summary(self, episode_id: str) -> EpisodeSummary:
        """One line of the list; StoreError when there is no such episode."""
        for found in self.summaries([episode_id]):
            return found
        raise no_episode(episode_id)

    def get(self, episode_id: str) -> Episode:
        """The whole episode with its finished turns; StoreError when there is no such episode."""
        with reading(self.engine) as connection:
            found = next(read_episodes(connection, [episode_id]), None)
        if found is None:
            raise no_episode(episode_id)
        return found

    def outline(self, episode_id: str) -> list[TurnOutline]:
        return self.outlines([episode_id])[episode_id]

    def outlines(self, episode_ids: Sequence[str]) -> dict[str, list[TurnOutline]]:
        """Every turn begun so far of several episodes, by episode id, without texts."""
        found: dict[str, list[TurnOutline]] = {one: [] for one in episode_ids}
        with reading(self.engine) as connection:
            query = select(*_OUTLINE).order_by(turn.c.idx)
            for row in rows_among(connection, query, turn.c.episode_id, episode_ids):
                found[row["episode_id"]].append(_outline(row))
        return found

    def text(self, episode_id: str, index: int) -> TurnText:
        """The texts of one turn, as far as they are written; StoreError when it has not begun."""
        query = (
            select(turn.c.stage, text.c.kind, text.c.body, episode.c.prompts_removed, episode.c.texts_removed)
            .join(episode, episode.c.id == turn.c.episode_id)
            .outerjoin(text, same_turn(text))
            .where(at_turn(turn, episode_id, index))
        )
        rows = fetch_rows(self.engine, query)
        if not rows:
            raise StoreError(f"Episode {episode_id} has no turn {index + 1}.")
        partial = rows[0].stage == "asked"
        found: dict[str, str] = {row.kind: row.body for row in rows if row.kind}
        return TurnText(
            messages=mapping.to_messages(found.get("prompt", "")),
            reply=found.get("partial" if partial else "reply", ""),
            reasoning=found.get("reasoning", ""),
            partial=partial,
            reply_removed=rows[0].texts_removed,
            prompt_removed=rows[0].texts_removed or rows[0].prompts_removed,
        )

    def replies(self, episode_id: str, cut: int) -> dict[int, str]:
        """What was said in each turn, as far as it is written and at most `cut` characters, by turn index."""
        query = select(text.c.idx, func.substr(text.c.body, 1, cut)).where(
            text.c.episode_id == episode_id, text.c.kind.in_(["reply", "partial"])
        )
        return dict(fetch_rows(self.engine, query))

    def of_run(self, run_id: str, policy: str | None = None) -> list[EpisodeSummary]:
        """All episodes of a run, oldest first."""
        query = select(*LIGHT).where(episode.c.run_id == run_id).order_by(episode.c.started, episode.c.id)
        if policy is not None:
            query = query.where(episode.c.policy == policy)
        return [to_summary(row) for row in fetch_mappings(self.engine, query)]

    def unfinished(self, run_id: str) -> list[Episode]:
        """Episodes to go on with, in the order of their ids: running, interrupted and missing ones."""
        query = (
            select(episode.c.id)
            .where(episode.c.run_id == run_id, episode.c.status != Status.FINISHED)
            .order_by(episode.c.id)
        )
        with reading(self.engine) as connection:
            found = list(read_episodes(connection, list(connection.execute(query).scalars())))
        return [replace(one, error=None) for one in found]  # what is missing gets another chance

    def stored_replies(self, run_id: str) -> dict[ReplyKey, Reply]:
        """Replies that are stored, and perhaps paid for, whose turns are not finished."""
        with reading(self.engine) as connection:
            return read_pending_replies(connection, run_id)

    def shared_replies(self, specs: Sequence[ModelSpec]) -> SharedReplies:
        """What these models have replied in any run, for another to use; empty until it is loaded."""
        return SharedReplies(self.engine, specs)

    def tasks(self, run_id: str) -> list[Task]:
        played = select(episode.c.task_key).where(episode.c.run_id == run_id)
        query = select(task).where(task.c.key.in_(played)).order_by(task.c.id, task.c.key)
        return [mapping.to_task(row) for row in fetch_mappings(self.engine, query)]

    def same_task(self, episode_id: str, limit: int = 50) -> list[EpisodeSummary]:
        key = select(episode.c.task_key).where(episode.c.id == episode_id).scalar_subquery()
        query = (
            select(*LIGHT)
            .where(episode.c.task_key == key, episode.c.id != episode_id)
            .order_by(episode.c.started.desc(), episode.c.id.desc())
            .limit(limit)
        )
        return [to_summary(row) for row in fetch_mappings(self.engine, query)]

    def delete(self, episode_ids: Sequence[str]) -> int:
        """Delete episodes with their turns and texts; returns how many. Running ones are refused."""
        deleted = 0
        with writing(self.engine) as connection:
            for chunk in chunks(episode_ids):
                chosen = episode.c.id.in_(chunk)
                running = select(episode.c.id).where(chosen, episode.c.status == Status.RUNNING).limit(1)
                if (busy := connection.execute(running).scalar()) is not None:
                    raise StoreError(
                        f"Episode {busy} is still running: cancel its run first, then delete it."
                    )
                deleted += delete_episodes(connection, chosen)
        return deleted


def _outline(row: Rows) -> TurnOutline:
    spent = {name: row[name] or 0 for name in ("tokens_in", "tokens_out", "latency_s")}
    return mapping.from_row(
        TurnOutline,
        row,
        index=row["idx"],
        recorded=mapping.to_recorded(row["recorded"]),
        judgements=(),
        **spent,
    )
