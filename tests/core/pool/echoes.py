"""Answers of a server that repeats what it was told, such as its client's key."""

from __future__ import annotations

from collections.abc import Callable

from tests.core.pool.faulty_server import Answer, events, fail, ok, respond, stream_head

#: Where it repeats it -> the answer.
ECHOES: dict[str, Callable[[str], Answer]] = {
    "401": lambda said: fail(401, f"Incorrect API key provided: {said}"),
    "403": lambda said: fail(403, f"no: {said}"),
    "400": lambda said: fail(400, f"bad header {said}"),
    "404": lambda said: fail(404, f"{said} not found"),
    "500": lambda said: fail(500, f"boom {said}"),
    "kind": lambda said: (respond(b"x", kind=f"text/{said}"),),
    "redirect": lambda said: fail(302, said, Location=f"http://127.0.0.1:9/?key={said}"),
    "protocol": lambda said: (f"HTTP/9 {said}\r\n\r\n".encode(),),
    "header": lambda said: (f"HTTP/1.1 200 OK\r\n{said}\x01: x\r\n\r\n".encode(),),
    "text": lambda said: ok(f"your key is {said}", reasoning_content=said),
    "finish": lambda said: ok("x", finish_reason=said),
    "tool": lambda said: ok("x", tool_calls=[{"id": said, "function": {"name": said, "arguments": said}}]),
    "reason": lambda said: (f"HTTP/1.1 500 {said}\r\nContent-Length: 0\r\n\r\n".encode(),),
    "other headers": lambda said: fail(502, Set_Cookie=said, WWW_Authenticate=f"Bearer {said}"),
    "content encoding": lambda said: (respond(b"x", headers={"Content-Encoding": said}),),
    "length": lambda said: (respond(b"x", sized=False, headers={"Content-Length": said}),),
    "chunk": lambda said: (stream_head(Transfer_Encoding="chunked"), f"{said}\r\n".encode()),
    "field": lambda said: (respond(b'{"choices": [{"message": {"content": {"%b": 1}}}]}' % said.encode()),),
    "pieces": lambda said: (stream_head(), events("your key is ", said[:9], said[9:], ", and so on")),
    "in the stream": lambda said: (stream_head(), b'data: {"error": {"message": "%b"}}\n\n' % said.encode()),
}
