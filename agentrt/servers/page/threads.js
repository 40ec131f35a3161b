// The reader's list of threads, kept in the browser: id, title, time of last use.

const KEY = "agentrt.threads";
const MAX_THREADS = 200;
const ID = /^[A-Za-z0-9_.:-]{1,128}$/;

export class ThreadStore {
  constructor() {
    this.list = read();
    this.onChange = () => {};
    window.addEventListener("storage", (event) => {
      if (event.key !== KEY) return;
      this.list = read();
      this.onChange();
    });
  }

  /** Note that a thread was used; its title is set by its first words, once. */
  touch(id, firstWords, moveUp = true) {
    const known = this.list.find((thread) => thread.id === id);
    if (known && !moveUp) return;
    const thread = { id, title: known?.title || titleOf(firstWords), time: Date.now() };
    this.list = [thread, ...this.list.filter((other) => other.id !== id)].slice(0, MAX_THREADS);
    this.save();
  }

  remove(id) {
    this.list = this.list.filter((thread) => thread.id !== id);
    this.save();
  }

  has(id) {
    return this.list.some((thread) => thread.id === id);
  }

  save() {
    try {
      localStorage.setItem(KEY, JSON.stringify(this.list));
    } catch {
      // private mode or full: the list lives as long as the page
    }
    this.onChange();
  }
}

/** The thread the address names (#t=<id>), or null. */
export function threadInAddress() {
  const found = /^#t=([^&]*)/.exec(location.hash);
  if (!found) return null;
  try {
    const id = decodeURIComponent(found[1]);
    return ID.test(id) ? id : null;
  } catch {
    return null;
  }
}

export function addressOf(threadId) {
  return `#t=${encodeURIComponent(threadId)}`;
}

function read() {
  try {
    const list = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    if (!Array.isArray(list)) return [];
    return list.filter((thread) => thread && typeof thread.id === "string" && ID.test(thread.id))
      .map(({ id, title, time }) => ({ id, title: String(title ?? "Thread"), time: Number(time) || 0 }));
  } catch {
    return [];
  }
}

function titleOf(text) {
  const words = text.replace(/\s+/g, " ").trim();
  if (words.length <= 48) return words || "New thread";
  const cut = words.slice(0, 48);
  return `${cut.slice(0, Math.max(cut.lastIndexOf(" "), 24))}…`;
}
