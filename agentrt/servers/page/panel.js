// The event panel: one row per frame as it came over the wire, and the live checks.

import { el } from "./dom.js";
import { shortId } from "./ids.js";
import { StickyScroll } from "./scroll.js";

const MAX_ROWS = 2000;

export class EventPanel {
  constructor(root) {
    this.list = root.querySelector(".event-rows");
    this.count = root.querySelector(".event-count");
    this.badges = { p1: root.querySelector("[data-testid=p1]"), p2: root.querySelector("[data-testid=p2]") };
    this.scroll = new StickyScroll(root.querySelector(".event-scroll"), null);
    this.fresh = []; // frames not drawn yet
    this.total = 0;
  }

  clear() {
    this.fresh = [];
    this.total = 0;
    this.list.replaceChildren();
  }

  add(frame) {
    this.fresh.push(frame);
    this.total += 1;
    if (this.fresh.length > MAX_ROWS) this.fresh.shift();
  }

  render(checks) {
    if (this.fresh.length) {
      const rows = this.fresh.map((frame) => (frame.resync ? snapshotRow(frame) : frameRow(frame)));
      this.fresh = [];
      this.list.append(...rows);
      while (this.list.childElementCount > MAX_ROWS) this.list.firstElementChild.remove();
      this.scroll.follow();
    }
    this.count.textContent = this.total === 1 ? "1 frame" : `${this.total} frames`;
    badge(this.badges.p1, "P1", "no hole, no repeat", checks.p1);
    badge(this.badges.p2, "P2", "one end per run", checks.p2);
  }
}

function badge(node, name, promise, { ok, text, count }) {
  const value = ok ? `${promise} · ${count} checked` : text;
  if (node.dataset.shown === value) return;
  node.dataset.shown = value;
  node.dataset.ok = String(ok);
  node.replaceChildren(el("b", { text: `${name} ${ok ? "✓" : "✗"}` }), el("span", { text: value }));
}

function frameRow(frame) {
  const { seq, type, runId } = frame;
  return row(frame, { "data-testid": "event-row", "data-seq": seq, "data-type": type, "data-run": runId ?? "" },
    String(seq), type ?? "?", shortId(runId));
}

function snapshotRow(frame) {
  return row(frame, { "data-testid": "event-resync", "data-type": "resync" }, String(frame.resync.seq), "resync", "–");
}

/** A row opens to show its frame as JSON, made only when asked for. */
function row(frame, attributes, seq, type, run) {
  const [family] = type.split("/");
  const button = el("button", { type: "button", class: "event-line", "aria-expanded": "false" },
    el("span", { class: "event-seq", text: seq }),
    el("span", { class: `event-type family-${family}`, text: type }),
    el("span", { class: "event-run", text: run }));
  const node = el("li", { class: "event-row", ...attributes }, button);
  button.addEventListener("click", () => {
    const shown = node.querySelector("pre");
    if (shown) shown.remove();
    else node.append(el("pre", { tabindex: "0", "aria-label": "Frame", text: JSON.stringify(frame, null, 2) }));
    button.setAttribute("aria-expanded", String(!shown));
  });
  return node;
}
