"""A service as a first draft has it: transformers' pipeline behind FastAPI, one request at a time.

python benchmarks/service_peers/naive.py FOLDER     # one that tasklm export wrote with --to hf; prints its address
"""

from __future__ import annotations

import socket
import sys
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from transformers import pipeline


class Body(BaseModel):
    """What is asked."""

    inputs: list[str]


def create_app(folder: str) -> FastAPI:
    """The application."""
    classify: Any = pipeline(
        "text-classification", model=folder, tokenizer=folder, device=-1, top_k=None
    )
    app = FastAPI()

    @app.post("/predict")
    async def predict(body: Body) -> dict[str, Any]:
        found = []
        for scores in classify(body.inputs, truncation=True):
            probabilities = {one["label"]: one["score"] for one in scores}
            found.append(
                {
                    "label": max(probabilities, key=lambda label: probabilities[label]),
                    "probabilities": probabilities,
                }
            )
        return {"answers": found}

    return app


if __name__ == "__main__":
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    server = uvicorn.Server(
        uvicorn.Config(create_app(sys.argv[1]), log_level="warning", access_log=False)
    )
    print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}", file=sys.stderr, flush=True)
    server.run(sockets=[listener])
