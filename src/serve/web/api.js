// api.js - requests to the server that delivered this page; docs/api.md describes them.
import { say } from "./words.js";

// The server refused a request. message is its own sentence; wait: seconds until it may be sent again.
export class Refused extends Error {
    constructor(message, wait) {
        super(message);
        this.wait = wait;
    }
}

let key = ""; // API key, which a server may demand

export function setKey(text) {
    key = text;
}

async function send(path, body, signal) {
    const post = (content) => ({
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify(key ? { ...content, api_key: key } : content),
    });
    const options = { signal, ...(body !== undefined && post(body)) };
    const answer = await fetch(path, options).catch((e) => {
        throw signal?.aborted ? e : new Refused(say("unreachable"));
    });
    if (answer.ok) return answer;
    const told = await answer.json().catch(() => ({}));
    const wait = Number(answer.headers.get("Retry-After"));
    throw new Refused(told.error || say("failed", answer.status), wait || undefined);
}

// GET, or POST where there is a body. The signal of an AbortController ends the request.
export async function ask(path, body, signal) {
    return (await send(path, body, signal)).json();
}

// The server-sent events that answer a POST, one by one: {event, data}.
export async function* events(path, body, signal) {
    const reader = (await send(path, body, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
    let buffer = "";
    for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        const blocks = (buffer + value).split(/\r?\n\r?\n/);
        buffer = blocks.pop();
        for (const block of blocks) {
            const field = (name) => block.match(new RegExp(`^${name}: ?(.*)$`, "m"))?.[1];
            if (field("data") === undefined) continue; // a comment that keeps the connection open
            const event = { event: field("event"), data: JSON.parse(field("data")) };
            if (event.event === "error") throw new Refused(event.data.error);
            yield event;
        }
    }
}
