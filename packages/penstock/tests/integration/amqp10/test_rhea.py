"""rhea, the client of AMQP 1.0 for JavaScript, where node and the package are there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.paths import PEERS
from tests.peers import Penstock

#: Where `npm install --prefix .peers rhea` puts it.
MODULES = PEERS / "node_modules"

PROGRAM = """
const rhea = require('rhea');
const [port, queue] = process.argv.slice(2);
const container = rhea.create_container();
const got = [];
let answers, service;
container.on('connection_open', (context) => {
    answers = context.connection.open_receiver({source: {dynamic: true}});
    service = context.connection.open_receiver(queue);
});
container.on('receiver_open', (context) => {
    if (context.receiver !== answers) return;
    const sender = context.connection.open_sender(queue);
    sender.once('sendable', () => sender.send({
        body: {question: 'six by seven', list: [1, 'two']},
        reply_to: answers.source.address,
        correlation_id: 'c-1',
        application_properties: {unit: 'none', count: 3},
        message_annotations: {'x-opt-note': 'kept'},
    }));
});
container.on('accepted', () => got.push('accepted'));
container.on('message', (context) => {
    const message = context.message;
    if (context.receiver === service) {
        got.push({asked: message.body, properties: message.application_properties,
                  note: message.message_annotations['x-opt-note']});
        const reply = context.connection.open_sender({target: {}});
        reply.once('sendable', () => reply.send(
            {to: message.reply_to, correlation_id: message.correlation_id, body: 42}));
    } else {
        got.push({answer: message.body, correlation: message.correlation_id});
        context.connection.close();
    }
});
container.on('connection_close', () => console.log(JSON.stringify(got)));
container.on('disconnected', (context) => { if (context.error) process.exit(1); });
container.connect({host: '127.0.0.1', port: Number(port), username: 'guest', password: 'guest',
                   reconnect: false});
"""


def test_it_asks_and_answers(penstock: Penstock, tmp_path: Path, name: str) -> None:
    node = shutil.which("node")
    if node is None or not (MODULES / "rhea").exists():
        pytest.skip("node or rhea is not installed (npm install --prefix .peers rhea)")
    program = tmp_path / "ask.js"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [node, str(program), str(penstock.port), f"/queue/{name}"],
        env={**os.environ, "NODE_PATH": str(MODULES)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)
    assert got.count("accepted") >= 1
    told = [one for one in got if one != "accepted"]
    assert told == [
        {
            "asked": {"question": "six by seven", "list": [1, "two"]},
            "properties": {"unit": "none", "count": 3},
            "note": "kept",
        },
        {"answer": 42, "correlation": "c-1"},
    ]
