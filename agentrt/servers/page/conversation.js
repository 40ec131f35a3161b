// The reducer: frames of one thread in, the items to show out. Knows nothing of the DOM.
//
// Items, in reading order, are user and assistant messages, reasoning, tool calls,
// run errors and "stopped" marks. Each has a stable `key`; `takeChanges()` tells the
// view which of them changed since it last asked.

const TERMINAL = new Set(["run/finished", "run/error", "run/cancelled", "run/paused"]);
const DENIED = /\b(?:denied|rejected|declined|not approved)\b/i;

/** The text of a message's content, which may be a string or a list of parts. */
export function contentText(content) {
  if (typeof content === "string") return content;
  if (Array.isArray(content)) return content.map((part) => part?.text ?? (part?.type ? `[${part.type}]` : "")).join("");
  return content === null || content === undefined ? "" : JSON.stringify(content);
}

export class Conversation {
  constructor() {
    this.ends = 0;
    this.clear();
  }

  clear() {
    this.items = [];
    this.byKey = new Map();
    this.run = null; // {id} while a run is under way
    this.starting = false; // asked for a run, no answer yet
    this.stopping = false; // asked for its end
    this.interrupts = [];
    this.answers = new Map(); // interrupt id -> {approved, reason?}
    this.answering = false; // the answers are on their way
    this.ended = new Set();
    this.dirty = new Set();
    this.reordered = true;
  }

  get busy() {
    return this.run !== null || this.starting;
  }

  get paused() {
    return this.interrupts.length > 0 && !this.run;
  }

  takeChanges() {
    const changes = { dirty: this.dirty, reordered: this.reordered };
    this.dirty = new Set();
    this.reordered = false;
    return changes;
  }

  lastAssistantText() {
    return this.items.findLast((item) => item.kind === "assistant")?.text ?? "";
  }

  firstUserText() {
    return this.items.find((item) => item.kind === "user")?.text ?? "";
  }

  pendingUsers() {
    return this.items.filter((item) => item.kind === "user" && item.pending);
  }

  // --- what this page does itself ---------------------------------------------------

  /** Show the reader's own message at once; `pending` says how far it has got. */
  addPending(id, text, label) {
    return this.add({ key: id, kind: "user", text, label, pending: "queued" });
  }

  setPending(item, pending) {
    item.pending = pending;
    this.touch(item);
  }

  remove(item) {
    this.items = this.items.filter((other) => other !== item);
    this.byKey.delete(item.key);
    this.reordered = true;
  }

  /** The server accepted a run of which no frame was seen yet. */
  acceptRun(runId) {
    if (runId && !this.ended.has(runId)) this.run ??= { id: runId };
  }

  decide(interruptId, answer) {
    if (answer) this.answers.set(interruptId, answer);
    else this.answers.delete(interruptId);
    for (const item of this.items) if (item.interrupt?.id === interruptId) item.decision = answer;
    this.touchWaiting();
  }

  setAnswering(answering) {
    this.answering = answering;
    this.touchWaiting();
  }

  touchWaiting() {
    for (const item of this.items) if (item.kind === "tool" && item.status === "waiting") this.touch(item);
  }

  // --- snapshots --------------------------------------------------------------------

  /** Replace everything by the server's snapshot, save messages not yet sent. */
  resync({ messages = [], run = null, interrupts = [], open = [] }) {
    const waiting = this.pendingUsers();
    const { starting } = this;
    this.clear();
    this.starting = starting && waiting.some((item) => item.pending === "sending");
    this.run = run ? { id: run.runId } : null;
    const unfinished = new Set(open);
    for (const message of messages) this.restore(message, unfinished.has(message.id));
    for (const item of this.items) if (item.kind === "tool") this.settleRestored(item);
    this.pause(interrupts ?? []);
    for (const item of waiting) if (!this.byKey.has(item.key)) this.add(item);
  }

  restore(message, open) {
    const { id, role } = message;
    if (role === "user") this.add({ key: id, kind: "user", text: contentText(message.content), pending: null });
    else if (role === "reasoning") this.add({ key: id, kind: "reasoning", text: contentText(message.content), open });
    else if (role === "tool") this.result(message, true);
    else if (role === "assistant") {
      const text = contentText(message.content);
      if (text || open) this.add({ key: id, kind: "assistant", text, open });
      for (const call of message.toolCalls ?? []) {
        const tool = this.tool(call.id, call.function?.name);
        tool.name = call.function?.name ?? tool.name;
        tool.args = call.function?.arguments ?? "";
      }
    }
  }

  settleRestored(tool) {
    if (tool.result !== null) return;
    if (!this.run) tool.status = "error";
    else tool.status = isJson(tool.args) ? "running" : "streaming";
    tool.cut = !this.run;
  }

  // --- live frames --------------------------------------------------------------------

  apply(frame) {
    const { type, runId } = frame;
    if (type === "run/started") this.startRun(runId);
    else if (runId && !this.run && !TERMINAL.has(type) && !this.ended.has(runId)) this.run = { id: runId };
    let told = false;
    for (const event of frame.events ?? []) told = this.event(event) || told;
    if (TERMINAL.has(type)) this.endRun(frame, told);
  }

  startRun(runId) {
    this.run = { id: runId };
    this.stopping = false;
    for (const item of this.items) {
      if (item.kind !== "tool" || item.status !== "waiting") continue;
      item.status = item.decision?.approved === false ? "denied" : "running";
      item.interrupt = null;
      this.touch(item);
    }
    this.interrupts = [];
    this.answers.clear();
    this.answering = false;
  }

  /** Apply one AG-UI event; true if it told the reader how the run ended. */
  event(event) {
    switch (event.type) {
      case "RUN_STARTED":
        for (const message of event.input?.messages ?? []) if (message.role === "user") this.mergeUser(message);
        return false;
      case "RUN_FINISHED":
        if (event.outcome?.type === "interrupt") this.pause(event.outcome.interrupts ?? []);
        if (event.outcome?.type !== "cancelled") return false;
        this.addEnd({ kind: "stopped" });
        return true;
      case "RUN_ERROR":
        this.addEnd({ kind: "error", message: event.message ?? "The run failed.", code: event.code ?? "" });
        return true;
      case "TEXT_MESSAGE_START":
        if (event.role === "user") this.mergeUser({ id: event.messageId, content: "" });
        else this.text(event.messageId, "assistant", "", true);
        return false;
      case "TEXT_MESSAGE_CONTENT": this.text(event.messageId, "assistant", event.delta, true); return false;
      case "TEXT_MESSAGE_END": this.closeText(event.messageId); return false;
      case "REASONING_START":
      case "REASONING_MESSAGE_START": this.text(event.messageId, "reasoning", "", true); return false;
      case "REASONING_MESSAGE_CONTENT": this.text(event.messageId, "reasoning", event.delta, true); return false;
      case "REASONING_MESSAGE_END":
      case "REASONING_END": this.closeText(event.messageId); return false;
      case "TOOL_CALL_START": this.startTool(event); return false;
      case "TOOL_CALL_ARGS": this.toolArgs(event); return false;
      case "TOOL_CALL_END": this.endTool(event); return false;
      case "TOOL_CALL_RESULT": this.result(event, false); return false;
      default: return false; // state, steps, custom: nothing to show
    }
  }

  endRun({ type, runId }, told) {
    if (type === "run/cancelled" && !told) this.addEnd({ kind: "stopped" });
    if (type === "run/error" && !told) this.addEnd({ kind: "error", message: "The run failed.", code: "" });
    if (runId) this.ended.add(runId);
    this.run = null;
    this.stopping = false;
    const paused = type === "run/paused";
    for (const item of this.items) {
      if (item.open) {
        item.open = false;
        this.touch(item);
      }
      if (item.kind !== "tool" || (item.status !== "streaming" && item.status !== "running")) continue;
      item.status = paused ? "waiting" : type === "run/finished" ? "done" : "error";
      item.cut = !paused;
      this.touch(item);
    }
  }

  mergeUser(message) {
    const known = this.byKey.get(message.id);
    const text = contentText(message.content);
    if (!known) {
      this.add({ key: message.id, kind: "user", text, pending: null });
      return;
    }
    if (known.pending && this.items.at(-1) !== known) {
      this.remove(known); // others spoke meanwhile: it belongs where its run begins
      this.add(known);
    }
    if (text) known.text = text;
    this.setPending(known, null);
  }

  text(id, kind, delta, open) {
    const item = this.byKey.get(id) ?? this.add({ key: id, kind, text: "", open });
    item.text += delta ?? "";
    item.open = open;
    this.touch(item);
  }

  closeText(id) {
    const item = this.byKey.get(id);
    if (!item) return;
    item.open = false;
    this.touch(item);
  }

  // --- tool calls and their approval ------------------------------------------------

  tool(id, name) {
    const key = `tool:${id}`;
    return this.byKey.get(key) ?? this.add({
      key, kind: "tool", id, name: name ?? "tool", args: "", status: "streaming",
      result: null, interrupt: null, decision: null, asked: false, cut: false,
    });
  }

  startTool(event) {
    const tool = this.tool(event.toolCallId, event.toolCallName);
    if (tool.status !== "streaming") tool.args = ""; // told anew, as after a resumed run
    tool.name = event.toolCallName ?? tool.name;
    tool.status = "streaming";
    this.touch(tool);
  }

  toolArgs(event) {
    const tool = this.tool(event.toolCallId);
    tool.args += event.delta ?? "";
    tool.status = "streaming";
    this.touch(tool);
  }

  endTool(event) {
    const tool = this.tool(event.toolCallId);
    tool.status = "running";
    this.touch(tool);
  }

  result(message, restored) {
    const tool = this.tool(message.toolCallId);
    const facts = message.metadata?.agentrt ?? {};
    const failed = Boolean(facts.isError || message.error);
    tool.result = contentText(message.content) || contentText(message.error);
    const refused = facts.status === "denied" || tool.decision?.approved === false
      || ((tool.asked || restored) && DENIED.test(tool.result.slice(0, 200)));
    tool.status = !failed ? "done" : refused ? "denied" : "error";
    if (facts.status === "cut" || facts.status === "not_started") tool.cut = true;
    tool.interrupt = null;
    this.touch(tool);
  }

  pause(interrupts) {
    this.interrupts = interrupts;
    this.answers.clear();
    this.answering = false;
    for (const interrupt of interrupts) {
      const { metadata } = interrupt;
      const tool = this.tool(interrupt.toolCallId ?? interrupt.id, metadata?.toolName);
      if (!tool.args && metadata?.arguments !== undefined) tool.args = JSON.stringify(metadata.arguments);
      Object.assign(tool, { interrupt, asked: true, status: "waiting", cut: false, decision: null });
      this.touch(tool);
    }
    if (interrupts.length === 0) return;
    for (const item of this.items.slice(this.items.findLastIndex((other) => other.kind === "user") + 1)) {
      if (item.cut && item.result === null) Object.assign(item, { status: "waiting", cut: false });
    }
  }

  // --- items ----------------------------------------------------------------------------

  add(item) {
    this.items.push(item);
    this.byKey.set(item.key, item);
    this.reordered = true;
    this.dirty.add(item);
    return item;
  }

  addEnd(item) {
    this.ends += 1;
    this.add({ key: `end:${this.ends}`, ...item });
  }

  touch(item) {
    this.dirty.add(item);
  }
}

function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
