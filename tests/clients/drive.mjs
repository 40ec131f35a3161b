// Drives one published AG-UI client, step by step, for the tests beside it.
//
// Standard input has one JSON line each: first {url, generation, threadId}, then a step
// at a time: {user: "..."}, or {resume: payload} which gives every open interrupt that
// answer; {leaveAfter: TYPE} beside it closes the connection at the first event of that
// type. Each step is answered by one JSON line on standard output: what the client
// accepted and holds, what it complained of, what came over the wire, and what is wrong
// with that though the client let it pass.

import { randomUUID } from "node:crypto";
import { createInterface } from "node:readline";

const TERMINAL = ["RUN_FINISHED", "RUN_ERROR"];
const CLIENTS = { "1.0": "@ag-ui/client", legacy: "agui-client-legacy" };

/** What the response really was: kept beside what the client makes of it. */
class Wire {
  begin() {
    this.status = null;
    this.text = "";
    this.done = Promise.resolve();
  }

  fetch = async (url, init) => {
    const response = await fetch(url, init);
    this.status = response.status;
    if (!response.ok) return response;
    const [mine, theirs] = response.body.tee();
    this.done = this.read(mine);
    return new Response(theirs, { status: response.status, headers: response.headers });
  };

  async read(stream) {
    const decoder = new TextDecoder();
    try {
      for await (const bytes of stream) this.text += decoder.decode(bytes, { stream: true });
    } catch {
      // the step left: what came until then is kept
    }
  }

  get events() {
    return this.text.split("\n\n").flatMap((frame) => {
      const data = frame.split("\n").filter((line) => line.startsWith("data:"));
      return data.length ? [JSON.parse(data.map((line) => line.slice(5)).join("\n"))] : [];
    });
  }
}

function holdsNull(value) {
  if (value === null) return true;
  return typeof value === "object" && Object.values(value).some(holdsNull);
}

/** The rules that a client does not enforce itself. */
function faultsOf(wire, { threadId, runId, left }) {
  const faults = [];
  const { text, events } = wire;
  if (text.includes("\r")) faults.push("a carriage return");
  if (events.some(holdsNull)) faults.push("a null member");
  if (events[0]?.type !== "RUN_STARTED") faults.push(`first comes ${events[0]?.type}`);
  const ends = events.filter(({ type }) => TERMINAL.includes(type));
  if (!left && ends.length !== 1) faults.push(`${ends.length} terminal events`);
  if (!left && !TERMINAL.includes(events.at(-1)?.type)) faults.push("the last event is not terminal");
  for (const event of events.filter(({ type }) => type === "RUN_STARTED" || type === "RUN_FINISHED")) {
    if (event.threadId !== threadId) faults.push(`${event.type} has another threadId`);
    if (event.runId !== runId) faults.push(`${event.type} has another runId`);
  }
  return faults;
}

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const next = async () => {
  const { value, done } = await lines.next();
  return done ? null : JSON.parse(value);
};

const { url, generation, threadId } = await next();
const { HttpAgent } = await import(CLIENTS[generation]);
const wire = new Wire();
const agent = new HttpAgent({ url, threadId, fetch: wire.fetch });
let complaints = [];
console.warn = console.error = (...words) => complaints.push(words.map(String).join(" "));

for (let step = await next(); step !== null; step = await next()) {
  complaints = [];
  wire.begin();
  const runId = randomUUID();
  const params = { runId };
  if (step.user) agent.addMessage({ id: randomUUID(), role: "user", content: step.user });
  if (step.resume) {
    params.resume = agent.pendingInterrupts.map(({ id }) => ({ interruptId: id, status: "resolved", payload: step.resume }));
  }
  const accepted = [];
  let left = false;
  let error = null;
  try {
    await agent.runAgent(params, {
      onEvent({ event }) {
        accepted.push(event.type);
        if (event.type !== step.leaveAfter || left) return;
        left = true;
        agent.abortRun();
      },
      onRunFailed({ error: failure }) {
        error = String(failure?.message ?? failure);
      },
    });
  } catch (failure) {
    error = String(failure?.message ?? failure);
  }
  await wire.done;
  process.stdout.write(`${JSON.stringify({
    runId, accepted, error, left, complaints,
    status: wire.status,
    events: left ? [] : wire.events,
    faults: wire.status === 200 && !left ? faultsOf(wire, { threadId, runId, left }) : [],
    messages: agent.messages,
    interrupts: (agent.pendingInterrupts ?? []).map(({ id }) => id),
  })}\n`);
}
