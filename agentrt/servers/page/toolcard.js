// The card of one tool call: its name, how it stands, arguments, result, and the
// buttons to approve or deny it while it waits for the reader.

import { copyButton, el, icon } from "./dom.js";

const ONE_LINE = 36; // characters

const LABELS = {
  streaming: "writing arguments…",
  running: "running…",
  done: "done",
  error: "failed",
  waiting: "needs approval",
  denied: "denied",
};

export class ToolCard {
  constructor(item, commands) {
    this.item = item;
    this.commands = commands;
    this.approval = null;
    this.name = el("span", { class: "tool-name" });
    this.label = el("span", { class: "tool-status" });
    this.args = el("pre", { class: "tool-text", tabindex: "0", "aria-label": "Arguments", "data-testid": "tool-args" });
    this.result = el("pre", { class: "tool-text", tabindex: "0", "aria-label": "Result", "data-testid": "tool-result" });
    this.argsPart = part("Arguments", this.args);
    this.resultPart = part("Result", this.result);
    this.slot = el("div", { class: "approval-slot" });
    this.details = el("details", { class: "tool-details", open: true },
      el("summary", {}, icon("tool"), this.name, el("span", { class: "tool-dot" }), this.label, icon("chevron")),
      el("div", { class: "tool-body" }, this.argsPart, this.resultPart));
    this.node = el("section", { class: "tool-card", "data-testid": "tool-card", "aria-label": "Tool call" }, this.details, this.slot);
  }

  update(conversation) {
    const { item, node } = this;
    node.dataset.toolName = item.name;
    node.dataset.status = item.status;
    node.setAttribute("aria-label", `Tool call ${item.name}`);
    this.name.textContent = item.name;
    this.label.textContent = labelOf(item);
    const args = pretty(item.args);
    if (this.args.textContent !== args) this.args.textContent = args;
    this.argsPart.hidden = args === "" || args === "{}" || args === "[]";
    this.resultPart.hidden = item.result === null;
    if (item.result !== null) this.result.textContent = pretty(item.result) || "(empty)";
    this.resultPart.querySelector("span").textContent = item.status === "error" ? "Error" : "Result";
    this.updateApproval(conversation);
  }

  updateApproval(conversation) {
    const { interrupt, status } = this.item;
    if (status !== "waiting" || !interrupt) {
      this.approval?.node.remove();
      this.approval = null;
      return;
    }
    if (this.approval?.id !== interrupt.id) {
      this.approval?.node.remove();
      this.approval = new Approval(interrupt, this.commands);
      this.slot.append(this.approval.node);
    }
    this.approval.update(conversation);
  }
}

class Approval {
  constructor({ id, message }, commands) {
    this.id = id;
    this.commands = commands;
    this.approve = el("button", {
      type: "button", class: "button primary", "data-testid": "approve", text: "Approve",
      on: { click: () => commands.decide(id, { approved: true }) },
    });
    this.deny = el("button", {
      type: "button", class: "button danger", "data-testid": "deny", text: "Deny",
      on: { click: () => this.refuse() },
    });
    this.reason = el("input", {
      type: "text", class: "reason", "data-testid": "deny-reason", placeholder: "Reason, if you deny (optional)",
      "aria-label": "Reason for denying (optional)", autocomplete: "off", maxlength: "500",
    });
    this.reason.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.isComposing) return;
      event.preventDefault();
      this.refuse();
    });
    this.state = el("span", { class: "approval-state" });
    this.node = el("div", { class: "approval", role: "group", "aria-label": "Approval" },
      el("p", { class: "approval-text", text: message || "The agent asks to run this tool." }),
      this.reason, el("div", { class: "approval-buttons" }, this.approve, this.deny, this.state));
  }

  refuse() {
    const reason = this.reason.value.trim();
    this.commands.decide(this.id, reason ? { approved: false, reason } : { approved: false });
  }

  update(conversation) {
    const answer = conversation.answers.get(this.id);
    const sent = conversation.answering;
    for (const control of [this.approve, this.deny, this.reason]) control.disabled = sent;
    this.approve.setAttribute("aria-pressed", String(answer?.approved === true));
    this.deny.setAttribute("aria-pressed", String(answer?.approved === false));
    if (sent) this.state.textContent = "sending…";
    else if (answer) this.state.textContent = answer.approved ? "will be approved" : "will be denied";
    else this.state.textContent = "";
  }
}

function labelOf(item) {
  if (item.cut) return item.status === "done" ? "no result" : "stopped";
  if (item.status === "waiting" && !item.interrupt) return "on hold";
  if (item.status === "waiting" && item.decision) return "decided";
  return LABELS[item.status] ?? item.status;
}

function part(title, pre) {
  const head = el("div", { class: "tool-part-head" }, el("span", { text: title }), copyButton(`Copy ${title.toLowerCase()}`, () => pre.textContent));
  const node = el("div", { class: "tool-part" }, head, pre);
  return Object.assign(node, { hidden: true });
}

/** JSON laid out, on one line if it is short; text that is not JSON (yet) as it is. */
function pretty(text) {
  const start = text.trimStart()[0];
  if (start !== "{" && start !== "[") return text;
  try {
    const laidOut = JSON.stringify(JSON.parse(text), null, 2);
    const line = laidOut.replace(/\n */g, " "); // those inside strings are escaped
    return line.length <= ONE_LINE ? line : laidOut;
  } catch {
    return text;
  }
}
