"""Full text search over questions and replies: FTS5 on SQLite (the only SQLite-only SQL), LIKE elsewhere."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    TableClause,
    case,
    column,
    exists,
    func,
    literal_column,
    or_,
    select,
    table,
)

from storage.rows.schema import episode, task, text

#: Makes the indexes of a new SQLite store. Triggers keep them equal to their tables.
SEARCH_INDEXES: tuple[str, ...] = (
    "CREATE VIRTUAL TABLE task_search USING fts5(question, content='task', content_rowid='key')",
    "CREATE VIRTUAL TABLE text_search USING fts5(body, content='text', content_rowid='id')",
    "CREATE TRIGGER task_search_insert AFTER INSERT ON task BEGIN "
    "INSERT INTO task_search(rowid, question) VALUES (new.key, new.question); END",
    "CREATE TRIGGER task_search_delete AFTER DELETE ON task BEGIN "
    "INSERT INTO task_search(task_search, rowid, question) VALUES ('delete', old.key, old.question); END",
    "CREATE TRIGGER text_search_insert AFTER INSERT ON text WHEN new.kind = 'reply' BEGIN "
    "INSERT INTO text_search(rowid, body) VALUES (new.id, new.body); END",
    "CREATE TRIGGER text_search_delete AFTER DELETE ON text WHEN old.kind = 'reply' BEGIN "
    "INSERT INTO text_search(text_search, rowid, body) VALUES ('delete', old.id, old.body); END",
)

task_search = table("task_search", column("rowid"))
text_search = table("text_search", column("rowid"))
_FEW = 2000  # replies
_TERM = re.compile(r'"([^"]*)"|(\S+)')


def terms(query: str) -> list[str]:
    """The words and "quoted phrases" of a search box, without what no index can find."""
    cleaned = query.replace("\x00", " ")[:200]
    found = (phrase or word for phrase, word in _TERM.findall(cleaned))
    return [term.replace('"', " ").strip() for term in found if term.strip('" ')][:16]


def matching(query: str, dialect: str) -> ColumnElement[bool] | None:
    """The condition "the question or one reply holds every term" on `episode`; None without terms.

    The last word is a prefix, so that typing narrows the list. Terms of signs only (`+`, `=`) make it LIKE.
    """
    wanted = terms(query)
    if not wanted:
        return None
    if dialect != "sqlite" or not all(re.search(r"\w", term) for term in wanted):
        return or_(
            episode.c.task_key.in_(
                select(task.c.key).where(*(_like(task.c.question, term) for term in wanted))
            ),
            episode.c.id.in_(
                select(text.c.episode_id).where(
                    text.c.kind == "reply", *(_like(text.c.body, term) for term in wanted)
                )
            ),
        )
    expression = " ".join(f'"{term}"' for term in wanted) + "*"
    in_replies = _found(text_search, expression)
    # The episodes of few replies are listed once. A word in nearly every reply is looked up episode by episode:
    # a page in the list's own order is then full after a few, where listing them all would take longest.
    listed = episode.c.id.in_(select(text.c.episode_id).where(text.c.id.in_(in_replies)))
    probed = exists(select(text.c.id).where(text.c.episode_id == episode.c.id, text.c.id.in_(in_replies)))
    few = select(func.count() <= _FEW).select_from(in_replies.subquery()).scalar_subquery()
    return or_(episode.c.task_key.in_(_found(task_search, expression)), case((few, listed), else_=probed))


def _found(index: TableClause, expression: str) -> Select[Any]:
    return select(index.c.rowid).where(literal_column(index.name).op("MATCH")(expression))


def _like(column: ColumnElement[str], term: str) -> ColumnElement[bool]:
    return column.icontains(term, autoescape=True)
