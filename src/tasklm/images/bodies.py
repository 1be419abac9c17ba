"""The images in the body of a request: the bytes of one, a form with files, or JSON with base64."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json
from starlette.requests import Request

from tasklm.serve.limits import Limits, Refused, kind_of_body, read_any_body

RAW = ("image/png", "image/jpeg", "application/octet-stream")
FORM, JSON = "multipart/form-data", "application/json"
WAYS = (
    "Send the bytes of an image as image/png or image/jpeg, files as multipart/form-data, or "
    'JSON such as {"images": ["BASE64"]}'
)
MOST_BODY = 32 << 20  # bytes of a request
_BOUNDARY = re.compile(r'boundary="?([^";,]{1,70})"?', re.IGNORECASE)
_FILE = re.compile(rb'filename="([^"]{0,200})', re.IGNORECASE)


@dataclass(frozen=True)
class Upload:
    """An image of a request: its name for messages, and its bytes."""

    name: str
    content: bytes


async def uploads_in(request: Request, limits: Limits) -> list[Upload]:
    """The images of a request; raises Refused if there are none, or too many."""
    kind = kind_of_body(request)
    if kind not in (*RAW, FORM, JSON):
        raise Refused(415, f"{WAYS}.")
    body = await read_any_body(request, limits)
    if kind == JSON:
        uploads = _of_json(body)
    elif kind == FORM:
        uploads = _of_form(body, request.headers.get("content-type", ""))
    else:
        uploads = [Upload("the image", body)]
    if not uploads:
        raise Refused(422, f"There is no image. {WAYS}.")
    if len(uploads) > limits.inputs:
        most = f"at most {limits.inputs:,} are allowed per request"
        raise Refused(422, f"There are {len(uploads):,} images; {most}. Send several requests.")
    return uploads


def _of_json(body: bytes) -> list[Upload]:
    try:
        values: Any = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise Refused(400, f"The body is not valid JSON: {error}.") from None
    if not isinstance(values, dict) or set(values) != {"images"}:
        raise Refused(422, f"The body is not an object with images alone. {WAYS}.")
    given = values["images"]
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise Refused(422, "images is not a list of texts in base64.")
    uploads = []
    for place, one in enumerate(given):
        plain = one.partition(",")[2] if one.startswith("data:") else one
        try:
            content = base64.b64decode(plain, validate=True)
        except (binascii.Error, ValueError):
            raise Refused(422, f"images[{place}] is not in base64.") from None
        uploads.append(Upload(f"images[{place}]", content))
    return uploads


def _of_form(body: bytes, header: str) -> list[Upload]:
    """The files of a form, in their order; other fields are passed by."""
    match = _BOUNDARY.search(header)
    if match is None:
        raise Refused(400, "The form names no boundary in its Content-Type.")
    mark = b"--" + match[1].encode("latin-1", "replace")
    parts = (b"\r\n" + body).split(b"\r\n" + mark)
    if len(parts) < 3 or not parts[-1].startswith(b"--"):
        raise Refused(400, "The form is cut off: its last boundary is missing.")
    uploads = []
    for part in parts[1:-1]:
        head, _, content = part.partition(b"\r\n\r\n")
        if file := _FILE.search(head):
            uploads.append(Upload(file[1].decode("utf-8", "replace") or "the image", content))
    return uploads
