// Draws the list of threads, with the one that is open marked.

import { el, icon } from "./dom.js";
import { addressOf } from "./threads.js";

export class Sidebar {
  /** actions: select(id), remove(id). */
  constructor(root, actions) {
    this.root = root;
    this.actions = actions;
  }

  render(threads, selected) {
    const focused = this.root.contains(document.activeElement);
    const rows = threads.map((thread) => this.row(thread, thread.id === selected));
    this.root.replaceChildren(...rows);
    if (threads.length === 0) this.root.append(el("li", { class: "thread-none", text: "No threads yet" }));
    if (focused) this.root.querySelector("a")?.focus();
  }

  row({ id, title, time }, current) {
    const open = el("a", {
      href: addressOf(id), class: "thread-open", "aria-current": current ? "true" : null,
      on: { click: (event) => this.open(event, id) },
    }, el("span", { class: "thread-title", text: title }), el("time", { class: "thread-time", text: when(time) }));
    const remove = el("button", {
      type: "button", class: "icon-button thread-remove", "aria-label": `Remove “${title}” from the list`,
      title: "Remove from list", "data-testid": "thread-remove", on: { click: () => this.actions.remove(id) },
    }, icon("close"));
    return el("li", {
      class: "thread", "data-testid": "thread-item", "data-thread": id, "data-current": String(current),
    }, open, remove);
  }

  open(event, id) {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return; // a new tab
    event.preventDefault();
    this.actions.select(id);
  }
}

function when(time) {
  const date = new Date(time);
  const today = new Date().toDateString() === date.toDateString();
  return today
    ? date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })
    : date.toLocaleDateString([], { day: "numeric", month: "short" });
}
