// What the reader can ask for: send a message, stop the run, answer approvals.
// Keeps what was asked while the connection was away and says what became of it.

import { newId } from "./ids.js";

export class Commands {
  /** hooks: changed(), notice(text), restore(text) to the composer, answered(). */
  constructor(conversation, connection, subscription, hooks) {
    this.conversation = conversation;
    this.connection = connection;
    this.subscription = subscription;
    this.hooks = hooks;
  }

  get threadId() {
    return this.subscription.threadId;
  }

  send(text) {
    const { conversation } = this;
    if (conversation.busy || conversation.paused || conversation.pendingUsers().length) return false;
    conversation.addPending(newId(), text, newId());
    this.flush();
    this.hooks.changed();
    return true;
  }

  /** The thread is caught up: send what waits, and judge what may have been lost. */
  flush() {
    if (!this.subscription.ready) return;
    const { conversation } = this;
    for (const item of conversation.pendingUsers()) {
      if (item.pending === "queued") this.run(item);
      else if (item.pending === "unknown") conversation.setPending(item, "unsent");
    }
    if (conversation.answering && !conversation.busy) conversation.setAnswering(false); // they were lost
  }

  retry(item) {
    this.conversation.setPending(item, "queued");
    this.flush();
    this.hooks.changed();
  }

  discard(item) {
    this.conversation.remove(item);
    this.hooks.restore(item.text);
    this.hooks.changed();
  }

  async run(item) {
    const { conversation, threadId } = this;
    conversation.setPending(item, "sending");
    const message = { id: item.key, role: "user", content: item.text };
    const failed = await this.begin("run", runInput(threadId, item.label, { messages: [message] }));
    if (threadId !== this.threadId) return;
    if (!failed) {
      if (item.pending === "sending") conversation.setPending(item, null);
    } else if (item.pending === "sending") {
      if (failed.code === "offline") conversation.setPending(item, "unknown");
      else this.discard(item);
    }
    this.hooks.changed();
  }

  /** Ask for a run or a resumption; resolves with the error, or null if accepted. */
  async begin(op, input) {
    const { conversation, threadId } = this;
    conversation.starting = true;
    let failed = null;
    try {
      const reply = await this.connection.request(op, { threadId, input });
      const told = this.subscription.last > reply.since; // its frames came before this reply
      if (threadId === this.threadId && !told) conversation.acceptRun(reply.runId);
    } catch (error) {
      failed = error;
    }
    if (threadId !== this.threadId) return failed;
    conversation.starting = false;
    if (failed && failed.code !== "offline") this.hooks.notice(explain(failed));
    if (conversation.stopping) {
      if (conversation.run) this.sendStop();
      else conversation.stopping = false;
    }
    return failed;
  }

  stop() {
    const { conversation } = this;
    if (!conversation.busy || conversation.stopping) return;
    conversation.stopping = true;
    if (conversation.run) this.sendStop();
    this.hooks.changed();
  }

  async sendStop() {
    const { conversation, threadId } = this;
    const runId = conversation.run.id;
    let stopped = false;
    try {
      const reply = await this.connection.request("stop", { threadId, runId });
      stopped = reply.stopped !== false;
    } catch (error) {
      if (error.code !== "offline") this.hooks.notice(explain(error));
    }
    if (!stopped && conversation.run?.id === runId) conversation.stopping = false;
    this.hooks.changed();
  }

  /** Decide one approval; once all are decided they are sent together. */
  decide(interruptId, answer) {
    const { conversation } = this;
    if (conversation.answering) return;
    conversation.decide(interruptId, answer);
    if (conversation.interrupts.every(({ id }) => conversation.answers.has(id))) this.resume();
    this.hooks.changed();
  }

  decideAll(answer) {
    const { conversation } = this;
    if (conversation.answering) return;
    for (const { id } of conversation.interrupts) conversation.decide(id, answer);
    this.resume();
    this.hooks.changed();
  }

  async resume() {
    const { conversation, threadId } = this;
    const resume = conversation.interrupts.map(({ id }) => (
      { interruptId: id, status: "resolved", payload: conversation.answers.get(id) }
    ));
    conversation.setAnswering(true);
    const failed = await this.begin("resume", runInput(threadId, newId(), { resume }));
    if (threadId !== this.threadId) return;
    if (failed && failed.code !== "offline") {
      for (const { id } of conversation.interrupts) conversation.decide(id, null);
      conversation.setAnswering(false);
    }
    this.hooks.changed();
    if (!failed) this.hooks.answered();
  }
}

function runInput(threadId, runId, more) {
  return { threadId, runId, messages: [], tools: [], context: [], state: {}, forwardedProps: {}, ...more };
}

const EXPLAINED = {
  busy: "A run is already under way in this thread.",
  paused: "The agent waits for an approval. Answer it first.",
  closing: "The server is shutting down. Try again in a moment.",
};

function explain({ code, message }) {
  return `${EXPLAINED[code] ?? message} (${code})`;
}
