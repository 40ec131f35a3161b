// The transcript: one view per item of the conversation, redrawn only when it changed.

import { copyButton, el, icon } from "./dom.js";
import { MarkdownView } from "./markdown.js";
import { ToolCard } from "./toolcard.js";

export class Transcript {
  /** `root` holds the messages; `empty` is shown instead while there are none. */
  constructor(root, empty, commands) {
    this.root = root;
    this.empty = empty;
    this.commands = commands;
    this.views = new Map(); // item key -> view
    this.working = el("div", { class: "working", hidden: true }, el("span"), el("span"), el("span"));
    this.working.append(el("span", { class: "offscreen", text: "The agent is working" }));
    this.together = new AnswerTogether(commands);
    root.append(this.together.node, this.working);
  }

  render(conversation, ready) {
    const { dirty, reordered } = conversation.takeChanges();
    if (reordered) this.arrange(conversation);
    for (const item of dirty) {
      const view = this.views.get(item.key);
      if (view?.item === item) view.update(conversation);
    }
    this.together.update(conversation);
    const last = conversation.items.at(-1);
    const writing = last && ((last.open && last.text) || last.kind === "tool");
    this.working.hidden = !conversation.busy || Boolean(writing);
    this.root.setAttribute("aria-busy", String(conversation.busy));
    const none = conversation.items.length === 0;
    this.empty.hidden = !none || !ready;
  }

  arrange(conversation) {
    const stale = new Map(this.views);
    let cursor = this.root.firstChild;
    for (const item of conversation.items) {
      let view = this.views.get(item.key);
      stale.delete(item.key);
      if (view && view.item !== item && view.kind !== item.kind) {
        if (cursor === view.node) cursor = cursor.nextSibling;
        view.node.remove();
        view = null;
      }
      if (!view) {
        view = makeView(item, this.commands);
        view.kind = item.kind;
        this.views.set(item.key, view);
      }
      view.item = item;
      if (view.node === cursor) cursor = cursor.nextSibling;
      else this.root.insertBefore(view.node, cursor);
    }
    for (const [key, view] of stale) {
      view.node.remove();
      this.views.delete(key);
    }
  }
}

function makeView(item, commands) {
  switch (item.kind) {
    case "user": return new UserView(item, commands);
    case "assistant": return new AssistantView(item);
    case "reasoning": return new ReasoningView(item);
    case "tool": return new ToolCard(item, commands);
    case "error": return new ErrorView(item);
    default: return new StoppedView(item);
  }
}

const PENDING = {
  queued: "Waiting for the connection…",
  unknown: "Connection lost while sending…",
  unsent: "The server has not got this message.",
};

class UserView {
  constructor(item, commands) {
    this.item = item;
    this.commands = commands;
    this.text = el("div", { class: "bubble" });
    this.node = el("article", { class: "message user", "data-testid": "message-user", "aria-label": "You" }, this.text);
  }

  update() {
    const { text, pending } = this.item;
    if (this.text.textContent !== text) this.text.textContent = text;
    if (this.node.dataset.pending === (pending ?? "")) return;
    this.node.dataset.pending = pending ?? "";
    this.node.replaceChildren(this.text);
    if (PENDING[pending]) this.node.append(this.note(pending));
  }

  note(pending) {
    const note = el("div", { class: "message-note", role: "status", text: PENDING[pending] });
    if (pending !== "unsent") return note;
    const button = (text, run) => el("button", { type: "button", class: "link", text, on: { click: run } });
    note.append(el("span", { class: "message-actions" },
      button("Send again", () => this.commands.retry(this.item)), button("Edit", () => this.commands.discard(this.item))));
    return note;
  }
}

class AssistantView {
  constructor(item) {
    this.item = item;
    this.body = el("div", { class: "markdown" });
    this.view = new MarkdownView(this.body);
    this.foot = el("div", { class: "message-foot" }, copyButton("Copy message", () => this.item.text));
    this.node = el("article", { class: "message assistant", "data-testid": "message-assistant", "aria-label": "Agent" }, this.body, this.foot);
  }

  update() {
    const { text, open } = this.item;
    this.view.update(text, open);
    this.node.dataset.open = String(open);
    this.node.hidden = text === "";
    this.foot.hidden = open;
  }
}

class ReasoningView {
  constructor(item) {
    this.item = item;
    this.label = el("span", { class: "reasoning-label" });
    this.body = el("div", { class: "markdown" });
    this.view = new MarkdownView(this.body);
    this.node = el("details", { class: "reasoning", "data-testid": "reasoning" },
      el("summary", {}, icon("chevron"), this.label), this.body);
  }

  update() {
    const { text, open } = this.item;
    this.label.textContent = open ? "Thinking…" : "Thoughts";
    this.node.dataset.open = String(open);
    this.node.hidden = text === "" && !open;
    this.view.update(text, open);
  }
}

class ErrorView {
  constructor(item) {
    this.item = item;
    this.message = el("p");
    this.code = el("code");
    this.node = el("section", { class: "run-error", role: "alert", "data-testid": "run-error" }, icon("alert"),
      el("div", {}, el("strong", { text: "The run failed" }), this.message, this.code));
  }

  update() {
    this.message.textContent = this.item.message;
    this.code.textContent = this.item.code;
    this.code.hidden = !this.item.code;
  }
}

class StoppedView {
  constructor(item) {
    this.item = item;
    this.node = el("p", { class: "stopped", "data-testid": "stopped" }, icon("stop"), "stopped");
  }

  update() {}
}

/** Shown when several approvals are open: they are answered in one go. */
class AnswerTogether {
  constructor(commands) {
    this.text = el("span");
    const button = (text, kind, answer, testid) => el("button", {
      type: "button", class: `button ${kind}`, text, "data-testid": testid,
      on: { click: () => commands.decideAll(answer) },
    });
    this.buttons = [
      button("Approve all", "primary", { approved: true }, "approve-all"),
      button("Deny all", "danger", { approved: false }, "deny-all"),
    ];
    this.node = el("div", { class: "together", role: "group", "aria-label": "All approvals", hidden: true }, this.text, ...this.buttons);
  }

  update(conversation) {
    const { interrupts, answers, answering, run } = conversation;
    this.node.hidden = interrupts.length < 2 || run !== null;
    this.text.textContent = `${answers.size} of ${interrupts.length} decided; sent once all are.`;
    for (const button of this.buttons) button.disabled = answering;
  }
}
