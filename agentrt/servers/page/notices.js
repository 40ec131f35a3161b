// Short notices above the composer: what went wrong with a request or the connection.

import { el, icon } from "./dom.js";

const MAX_NOTICES = 4;

export class Notices {
  constructor(root) {
    this.root = root;
    this.shown = new Map(); // key -> node
  }

  /** Show `text`; a notice with the same key is replaced. */
  show(text, { key = text, kind = "error" } = {}) {
    this.dismiss(key);
    const close = el("button", {
      type: "button", class: "icon-button", "aria-label": "Dismiss", on: { click: () => this.dismiss(key) },
    }, icon("close"));
    const node = el("div", { class: `notice ${kind}`, role: "alert", "data-testid": "notice" }, el("span", { text }), close);
    this.shown.set(key, node);
    this.root.append(node);
    if (this.shown.size > MAX_NOTICES) this.dismiss(this.shown.keys().next().value);
  }

  dismiss(key) {
    this.shown.get(key)?.remove();
    this.shown.delete(key);
  }
}
