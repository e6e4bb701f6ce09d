// Reads server-sent events. (EventSource could not send a token.)

import { open, Refused } from "./api.js";

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 8000;

// Follows the stream for ever; `onEvent(name, data)` gets each event, `onState(text, why)` "live", "lost" or "refused".
export async function follow(path, onEvent, onState, signal) {
  let pause = FIRST_PAUSE_MS;
  while (!signal.aborted) {
    let why = "The service ended the connection.";
    try {
      const response = await open(path, { signal });
      onState("live");
      pause = FIRST_PAUSE_MS;
      await read(response.body, onEvent);
    } catch (error) {
      if (error.status === 401 && !signal.aborted) {
        onState("refused");
        return;
      }
      why = error instanceof Refused ? error.message : "The connection was lost.";
    }
    if (signal.aborted) return;
    onState("lost", why);
    await new Promise((done) => setTimeout(done, pause));
    pause = Math.min(2 * pause, LONGEST_PAUSE_MS);
  }
}

async function read(body, onEvent) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) tell(event, onEvent);
  }
}

function tell(event, onEvent) {
  let name = "message";
  let data = "";
  for (const line of event.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  if (data) onEvent(name, JSON.parse(data));
}
