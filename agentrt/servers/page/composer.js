// The composer: the text the reader writes, and the send and stop buttons beside it.

import { icon } from "./dom.js";

const MAX_HEIGHT = 220;

export class Composer {
  /** actions: send(text) -> true if taken, stop(). */
  constructor({ form, text, send, stop, hint }, actions) {
    Object.assign(this, { form, text, sendButton: send, stopButton: stop, hint, actions });
    send.append(icon("send"));
    stop.prepend(icon("stop"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
    text.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
      event.preventDefault();
      this.submit();
    });
    text.addEventListener("input", () => this.changed());
    stop.addEventListener("click", () => actions.stop());
  }

  submit() {
    const text = this.text.value.trim();
    if (!text || !this.actions.send(text)) return;
    this.text.value = "";
    this.changed();
  }

  focus() {
    this.text.focus({ preventScroll: true });
  }

  /** Put back a message that was not sent, unless something else was begun. */
  restore(text) {
    if (!this.text.value.trim()) this.text.value = text;
    this.changed();
  }

  changed() {
    this.text.style.height = "auto";
    this.text.style.height = `${Math.min(MAX_HEIGHT, this.text.scrollHeight)}px`;
    this.sendButton.disabled = this.blocked || !this.text.value.trim();
  }

  render({ busy, stopping, paused, pending, unsent }) {
    const hadFocus = document.activeElement === this.stopButton;
    this.blocked = busy || paused || pending;
    this.sendButton.disabled = this.blocked || !this.text.value.trim();
    this.sendButton.hidden = busy;
    this.stopButton.hidden = !busy;
    this.stopButton.disabled = stopping;
    this.stopButton.querySelector("span").textContent = stopping ? "stopping…" : "Stop";
    this.hint.dataset.kind = paused || unsent ? "advice" : "keys";
    this.hint.textContent = paused ? "Answer the request above first" : unsent ? "Send again or edit the message above first"
      : busy ? "Escape stops the run" : "Enter sends · Shift + Enter starts a new line";
    if (hadFocus && (!busy || stopping)) this.focus();
  }
}
